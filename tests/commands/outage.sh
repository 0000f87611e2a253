# what takes minutes: the tests of long leases with the default terms, a conversion of 500 tables: 25 minutes
# It is what `tap` does with younger servers, with clocks that it sets, and with fewer tables.
if [ $# = 0 ]; then set -- tests/t/{lease/{both_registries,both_registries_etcd,outage_nine_minutes,crash_small_pools,cold_start},convert/many_tables}.pl; fi
LONG=1 run tap "$@"
