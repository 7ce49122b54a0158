<?php
// Not sleep(): the graceful stop interrupts it.
for ($end = microtime(true) + 4; microtime(true) < $end;) usleep(10000);
echo "finished";
