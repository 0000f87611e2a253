# prints which PostgreSQL the others run on
need_packages
printf '%s, %s\n' "$("$pg_config" --version)" "$("$pg_config" --bindir)"
