# checks that the scripts and the library name the same C functions
# The library exports each one that a script of an extension names, with its pg_finfo_ function, and no others.
need_packages nm:binutils
build
named=$(perl -0ne 'print "$1\n" while /\bAS\s+\x27MODULE_PATHNAME\x27,\s*\x27(\w+)\x27/g' \
    "$top"/sql/*.sql "$top"/convert/*.sql $(compgen -G "$top/sql/released/*.sql") | sort -u)
exported=$(symbols "$CARGO_TARGET_DIR/$profile/libsnowflake_id.so")
infos=$(sed -n 's/^pg_finfo_//p' <<< "$exported")
[ -n "$named" ] || die "the scripts name no C functions"
diff -u --label "named by scripts" --label "exported with pg_finfo_" <(echo "$named") <(echo "$infos")
diff -u --label "named by scripts" --label "exported of them" <(echo "$named") <(comm -12 <(echo "$named") <(echo "$exported"))
echo "$(wc -l <<< "$named") C functions, 1 passed, 0 failed"
