# checks that what `make test` needs is here; as root on Debian, installs it
need_for_tests
want_for_tap
