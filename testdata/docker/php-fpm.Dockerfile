# Stands in for php:fpm: the same ENTRYPOINT, CMD, STOPSIGNAL and place of configuration around Debian's php-fpm.
ARG BASE
FROM ${BASE}
COPY docker-php-entrypoint /usr/local/bin/
COPY php-fpm.conf slow.php /tmp/
RUN chmod 755 /usr/local/bin/docker-php-entrypoint && mkdir -p /usr/local/etc/php-fpm.d /var/www/html \
	&& mv /tmp/slow.php /var/www/html && mv /tmp/php-fpm.conf /usr/local/etc/php-fpm.d/www.conf \
	&& ln -s /usr/sbin/php-fpm8* /usr/local/sbin/php-fpm \
	&& printf '[global]\nerror_log = /proc/self/fd/2\ndaemonize = no\ninclude = /usr/local/etc/php-fpm.d/*.conf\n' > "$(echo /etc/php/*/fpm/php-fpm.conf)"
WORKDIR /var/www/html
EXPOSE 9000
STOPSIGNAL SIGQUIT
ENTRYPOINT ["docker-php-entrypoint"]
CMD ["php-fpm"]
