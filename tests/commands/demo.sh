# tests/demo: the demo, and its page in a browser
# The browser is large, so this test is not part of the others. PICTURES is a folder for pictures of the page.
want_chromium || { echo "skipped: Chromium is not here, and could not be installed"; return 0; }
make_scratch
trap cleanup EXIT
export PAGE="$scratch/demo.html" OUT="$scratch/out"
"$top/tests/demo.sh" > "$OUT" || { cat "$OUT" >&2; return 1; }
prove --timer "$top/tests/demo/001_page.pl"
