# builds cargo-pgrx, once; needs no PostgreSQL
need_cargo_pgrx
