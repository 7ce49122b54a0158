# Stands in for nginx:stable: the same ENTRYPOINT, CMD and STOPSIGNAL around Debian's nginx.
ARG BASE
FROM ${BASE}
COPY docker-entrypoint.sh /
COPY nginx.conf /etc/nginx/nginx.conf
RUN chmod 755 /docker-entrypoint.sh && mkdir -p /srv/html && echo hello > /srv/html/index.html && head -c 400000 /dev/zero > /srv/html/slow
EXPOSE 80
STOPSIGNAL SIGQUIT
ENTRYPOINT ["/docker-entrypoint.sh"]
CMD ["nginx", "-g", "daemon off;"]
