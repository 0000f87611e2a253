# PostgreSQL's official image with the extension in it:
#   docker build -f Dockerfile --build-arg PG=18 -t postgres-snowflake:18 .
# See docs/install.md. The Containerfile beside this file makes another kind of image,
# which CloudNativePG mounts beside the server's own.
ARG PG=18
ARG SUITE=bookworm

FROM postgres:${PG}-${SUITE} AS build
ARG PG
ARG RUST=1.96.0
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates curl gcc libc6-dev libclang-dev libpq-dev make postgresql-server-dev-${PG}
RUN curl --proto '=https' --tlsv1.2 -fsS https://sh.rustup.rs | sh -s -- -y --profile minimal --default-toolchain ${RUST}
ENV PATH=/root/.cargo/bin:${PATH}
WORKDIR /snowflake_id
COPY . .
RUN make build PG_CONFIG=/usr/lib/postgresql/${PG}/bin/pg_config
RUN make install PG_CONFIG=/usr/lib/postgresql/${PG}/bin/pg_config DESTDIR=/installed
RUN mkdir -p /installed/usr/share/doc/snowflake_id && cp LICENSE /installed/usr/share/doc/snowflake_id/ \
    && tools/crates ${PG} > /installed/usr/share/doc/snowflake_id/crates.txt

FROM postgres:${PG}-${SUITE}
COPY --from=build /installed/ /
