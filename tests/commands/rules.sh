# what all files keep to, in seconds: formatting, one version, what only some files may do; needs no PostgreSQL
need_rust

# only_in WORD FILE:FUNCTION ... : fails unless all uses of a word (a regular expression) in src are in these functions,
# and there is one.
only_in() {
    local all found place
    all=$(grep -rEho "$1" src | wc -l) || true
    [ "$all" -gt 0 ] || die "src has no $1: tests/run looks for a name that is gone"
    found=$(for place in "${@:2}"; do
        sed -nE "/^ *(pub(\([a-z]+\))? )?(unsafe )?fn ${place#*:}[<(]/,/^ *\}\$/p" "${place%:*}"
    done | grep -Eo "$1" | wc -l) || true
    [ "$found" = "$all" ] || die "$1 may be used in ${*:2} only: $(grep -rEn "$1" src | cut -d: -f1,2 | tr '\n' ' ')"
}

check_versions

# What DESIGN.md names is there.
while read -r name; do
    [ -e "$name" ] || grep -rqwF --include=*.rs --include=*.sql -e "$name" src crates/*/src sql ||
        die "DESIGN.md names $name, which is nowhere"
done < <(grep -oE '`[^`]+`|[a-z-]+/[a-z_/-]+\.rs' DESIGN.md | tr -d '`()' | sort -u)

# What only few places may do, since each other one would be a hole.
# Who switches the user undoes the settings that the other user's code has made.
only_in 'SetUserIdAndSecContext' src/postgres/spi.rs:as_user
only_in 'NewGUCNestLevel' src/postgres/spi.rs:as_user src/postgres/spi.rs:connected
only_in 'AtEOXact_GUC' src/postgres/spi.rs:as_user src/postgres/spi.rs:connected
# To parse a query is to run code of those who made its types.
only_in 'SPI_prepare\w*' src/postgres/spi.rs:parse_and_run src/postgres/spi.rs:keep_plan src/postgres/spi.rs:read_pairs
# One way to run SQL, with a path of its own.
! grep -rnE 'SPI_(connect|execute|prepare|cursor)|\bSpi::' src --include=*.rs | grep -vE '^src/(postgres/spi|tests|tests/\w+)\.rs:' ||
    die "SQL is run elsewhere than in src/postgres/spi.rs"
spi=src/postgres/spi.rs
called_once() { [ "$(grep -v '^unsafe fn' $spi | grep -o "$1(" | wc -l)" = 1 ]; }
sed -n '/^unsafe fn parse_and_run(/,/^}$/p' $spi | grep -c 'as_user(user, pg_sys::SECURITY_RESTRICTED_OPERATION, run)' > /dev/null ||
    die "parse_and_run() in $spi does not parse as the other user"
called_once keep_plan && sed -n '/^pub fn row_as(/,/^}$/p' $spi | grep -A 8 'as_user(user, 0, || {' | grep -c 'keep_plan(' > /dev/null ||
    die "row_as() in $spi does not parse as the other user"
called_once read_pairs && grep -A 4 'read = || unsafe { read_pairs(' $spi | grep -c 'as_user(user, restrictions, read)' > /dev/null ||
    die "read_pairs() in $spi does not parse as the other user"
# Arguments of any length are measured before they are copied: see src/postgres/size_limit.rs.
! grep -nE 'get::<(&|Array|String|JsonB?|Vec)|call\.datum\(' src/sql/*.rs |
    grep -vE '^src/sql/held.rs:|INTERVALOID, call\.datum|\.cast_mut_ptr::<pg_sys::Node>' ||
    die "an argument of variable length is read without Call::measured()"
# Only the guard lends the rights of the owner of the tables.
only_in 'spi::row_as' src/postgres/own_tables.rs:row
# A function that conversions make is SECURITY DEFINER, with names that are bound when it is made. No other one is: see
# src/postgres/own_tables.rs.
[ "$(grep -hE '^[^-]*SECURITY DEFINER' sql/*.sql convert/*.sql | wc -l)" = \
    "$(grep -hE -A 1 '^[^-]*LANGUAGE sql .*SECURITY DEFINER' sql/*.sql convert/*.sql | grep -c "^ *|| 'RETURN ")" ] ||
    die "a function is SECURITY DEFINER, and its names are not bound when it is made"
# A walker that catches errors does so at each level of a query.
! grep -B 4 -nE 'fn \w+\(node: \*mut pg_sys::Node, ' src/*/*.rs | grep -E 'pg_guard' || die "a walker of trees has a guard"

# The name of a schema may have a %, which format() would take for one of its own.
found=$(perl -0777 -ne '
    while (/\bformat\(\s*((?:E?\x27(?:[^\x27]|\x27\x27)*\x27\s*(?:\|\|\s*)?)+|\$(\w*)\$.*?\$\2\$)/gs) {
        my ($text, $before) = ($1, substr($_, 0, $-[0]));
        print "$ARGV: line ", 1 + $before =~ tr/\n//, "\n" if $text =~ /\@extschema\@/;
    }' sql/*.sql convert/*.sql)
[ -z "$found" ] || die "@extschema@ is in the first argument of format(), pass it as another one: $found"

cargo fmt --all --check
