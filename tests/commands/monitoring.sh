# tests/monitoring: the exporter, the alerts and the dashboard of docs/monitoring
# Prometheus and its exporter are no part of most development machines. PICTURES is a folder for a picture
# of the dashboard, which needs Chromium and all of Grafana's packages too. With it, the servers run for 3
# minutes longer.
(need prometheus:prometheus promtool:prometheus prometheus-postgres-exporter:prometheus-postgres-exporter \
    /usr/lib/python3/dist-packages/yaml/__init__.py:python3-yaml) || {
    echo "skipped: Prometheus, its exporter for PostgreSQL or Python's YAML is not here, and could not be installed"
    return 0
}
source=$top/tests/monitoring/picture
# Grafana's types are few of its packages.
grafana=$CARGO_TARGET_DIR/grafana-types
if npm_into "$grafana" "$source" "types of Grafana" --omit=dev; then
    printf "import type { Dashboard } from './types';\nexport const dashboard: Dashboard = %s;\n" \
        "$(cat "$top/docs/monitoring/dashboard.json")" > "$grafana/dashboard.ts"
    (cd "$grafana" && node_modules/.bin/tsc --noEmit --strict --skipLibCheck --target es2022 --module esnext \
        --moduleResolution bundler dashboard.ts types.ts) || die "docs/monitoring/dashboard.json is not what Grafana's types say"
    echo "docs/monitoring/dashboard.json is what Grafana's types say"
fi
prepare
if [ -n "${PICTURES:-}" ]; then
    grafana=$CARGO_TARGET_DIR/grafana-picture
    if ! want_chromium; then
        echo "skipped: no picture, since Chromium is not here, and could not be installed"
    elif npm_into "$grafana" "$source" "picture of Grafana"; then
        # The editor, which is large, is not drawn.
        (cd "$grafana" && node_modules/.bin/esbuild main.tsx --bundle --minify --jsx=automatic --log-level=error \
            --define:process.env.NODE_ENV='"production"' --loader:.woff=dataurl --loader:.woff2=dataurl --external:monaco-editor --outfile=picture.js)
        cp "$grafana"/picture.{js,css} "$scratch/"
        export PICTURE="$scratch/picture"
    fi
fi
install_all
JOBS=${JOBS:-1} prove_files "$scratch/tests/monitoring" "$@"
