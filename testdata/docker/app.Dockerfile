# Nothing but two static programs.
FROM scratch
COPY rootfs /
ENTRYPOINT ["/drainit"]
