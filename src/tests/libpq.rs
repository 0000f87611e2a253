//! Connections of a backend, and of a thread, to its own server.

#[pgrx::pg_schema]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Duration;

    use pgrx::prelude::*;

    use crate::postgres::backend_wait::Backend;
    use snowflake_registry_client::libpq::wait::{Stop, Thread, Waiter};
    use snowflake_registry_client::libpq::{Connection, Conninfo, LibpqError, ResultRows};

    const LONG: Duration = Duration::from_secs(600);
    const SHORT: Duration = Duration::from_millis(300);

    /// This server; `hosts` and `ports` come before it.
    fn own_server(hosts: &str, ports: &str) -> Conninfo {
        let conninfo = Spi::get_one::<String>(&format!(
            "SELECT format('host=%slocalhost port=%s%s dbname=%s user=%s', '{hosts}', '{ports}',
                           current_setting('port'), current_database(), session_user)"
        ));
        Conninfo::parse(&conninfo.unwrap().unwrap()).unwrap()
    }

    fn ask(
        connection: &mut Connection,
        sql: &str,
        parameters: &[Option<&str>],
    ) -> Result<ResultRows, LibpqError> {
        connection.query(sql, parameters, LONG, &mut Backend)
    }

    fn check_queries(server: &Conninfo, waiter: &mut dyn Waiter) {
        let mut connection = Connection::open(server, LONG, waiter).unwrap();
        let mut ask = |sql, parameters: &[_]| connection.query(sql, parameters, LONG, waiter);
        let rows = ask(
            "SELECT $1::text AS a, $2::int + 1 AS b, repeat('x', 100000)",
            &[Some("é ' \u{1F600}"), Some("41")],
        );
        let rows = rows.unwrap();
        assert_eq!(rows.columns, ["a", "b", "repeat"]);
        assert_eq!(rows.first_value(), Some("é ' \u{1F600}"));
        assert_eq!(rows.rows[0][1].as_deref(), Some("42"));
        assert_eq!(rows.rows[0][2].as_deref().map(str::len), Some(100_000));
        let null = ask("SELECT $1::text", &[None]).unwrap();
        assert_eq!((null.first_value(), null.rows.len()), (None, 1));
        // The server has to read all of it before it answers.
        let long = "y".repeat(20_000_000);
        let length = ask("SELECT length($1)", &[Some(&long)]).unwrap();
        assert_eq!(length.first_value(), Some("20000000"));
        let none = ask("SET client_min_messages = 'debug5'", &[]).unwrap();
        assert_eq!(none, ResultRows::default());
        let Err(LibpqError::Statement(refusal)) = ask("SELECT 1 / 0", &[]) else {
            panic!("1 / 0 has a result");
        };
        assert_eq!(refusal.sqlstate, "22012");
        let Err(LibpqError::Statement(refusal)) = ask("SELECT $1", &[Some("a\0")]) else {
            panic!("a zero is sent");
        };
        assert_eq!(refusal.sqlstate, "22021");
        let name = ask("SELECT current_setting('application_name')", &[]).unwrap();
        assert_eq!(name.first_value(), Some("snowflake_id"));
        assert!(connection.is_usable());
    }

    #[pg_test]
    fn libpq_queries() {
        check_queries(&own_server("", ""), &mut Backend);
    }

    #[pg_test]
    fn libpq_in_a_thread() {
        let server = own_server("", "");
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stop = Stop::new(theirs);
        thread::scope(|scope| {
            let work = || {
                block_signals();
                check_queries(&server, &mut Thread(&stop));
                let mut waiter = Thread(&stop);
                let mut connection = Connection::open(&server, LONG, &mut waiter).unwrap();
                // No other test sleeps for as long.
                connection.query("SELECT pg_sleep(601)", &[], LONG, &mut waiter)
            };
            let thread = scope.spawn(work);
            let sleeps = "SELECT count(*) FROM pg_stat_activity
                WHERE application_name = 'snowflake_id' AND query = 'SELECT pg_sleep(601)'";
            let mut connection = Connection::open(&server, LONG, &mut Backend).unwrap();
            while ask(&mut connection, sleeps, &[]).unwrap().first_value() != Some("1") {
                assert!(!thread.is_finished());
            }
            drop(ours);
            assert_eq!(thread.join().unwrap(), Err(LibpqError::Ended));
        });
    }

    fn block_signals() {
        // SAFETY: fills the set before it is read.
        unsafe {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        }
    }

    #[pg_test]
    fn libpq_gives_up_what_is_unclear() {
        let server = own_server("", "");
        let mut late = Connection::open(&server, LONG, &mut Backend).unwrap();
        let answer = late.query("SELECT pg_sleep(600)", &[], SHORT, &mut Backend);
        assert_eq!(answer, Err(LibpqError::TimedOut(SHORT)));
        assert!(!late.is_usable());
        assert!(matches!(
            ask(&mut late, "SELECT 1", &[]),
            Err(LibpqError::Lost(_))
        ));

        let mut copy = Connection::open(&server, LONG, &mut Backend).unwrap();
        let answer = ask(&mut copy, "COPY (SELECT 1) TO STDOUT", &[]);
        assert!(matches!(answer, Err(LibpqError::Lost(_))));
        assert!(!copy.is_usable());

        let mut ended = Connection::open(&server, LONG, &mut Backend).unwrap();
        let answer = ask(
            &mut ended,
            "SELECT pg_terminate_backend(pg_backend_pid())",
            &[],
        );
        let Err(LibpqError::Lost(message)) = answer else {
            panic!("the connection is not lost");
        };
        assert!(message.contains("administrator command"), "{message}");
        assert!(!ended.is_usable());
    }

    #[pg_test]
    fn libpq_hosts_that_do_not_answer() {
        // The kernel accepts the connection, and nobody answers.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = silent.local_addr().unwrap().port();
        let second = own_server("127.0.0.1,", &format!("{port},"));
        let time = Duration::from_secs(4);
        let mut connection = Connection::open(&second, time, &mut Backend).unwrap();
        let answer = ask(&mut connection, "SELECT 7", &[]).unwrap();
        assert_eq!(answer.first_value(), Some("7"));
    }

    #[pg_test]
    fn libpq_unknown_database() {
        let unknown = own_server("", "")
            .describe()
            .replace("dbname=", "dbname=no_");
        let answer = Connection::open(&Conninfo::parse(&unknown).unwrap(), LONG, &mut Backend);
        assert!(matches!(answer, Err(LibpqError::Connect(_))));
    }
}
