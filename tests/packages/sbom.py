# Checks the list of crates SBOM of a VERSION: it names the crates in the file TREE, and no others, each with its
# licence and checksum.
import json, sys
sbom, version, tree = sys.argv[1:]
bom = json.load(open(sbom))
assert bom['bomFormat'] == 'CycloneDX' and bom['specVersion'] == '1.5', bom['bomFormat']
main = bom['metadata']['component']
assert (main['name'], main['version']) == ('snowflake_id', version), main
listed = {f"{part['name']} v{part['version']}": part for part in bom['components']}
linked = {line.strip() for line in open(tree)} - {f'snowflake_id v{version}'}
missing = linked - listed.keys()
assert not missing, f'crates that are not listed: {missing}'
extra = listed.keys() - linked
assert not extra, f'crates that are not in the library: {extra}'
for crate, part in listed.items():
    assert part.get('licenses'), f'{crate} has no licence'
    assert part['purl'].startswith('pkg:cargo/'), crate
    # The project's own crates come from no registry.
    if not crate.startswith('snowflake_'):
        assert part['hashes'][0]['alg'] == 'SHA-256', crate
assert 'pgrx v0.19.3' in listed and 'proptest' not in str(listed.keys())
print(f'{len(listed)} crates listed, each with its licence and checksum; 1 passed, 0 failed')
