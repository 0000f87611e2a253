//! What administrators do with a registry in etcd, from a session of any server.
//!
//! The calls run in a thread that gets no signals, as all that waits for etcd does; the
//! session waits for it, and resumes at once if its query is cancelled. Then the thread
//! ends by itself, within [`TIMEOUT`].

use std::time::Duration;

use pgrx::pg_sys;

use super::error::{self, Error};
use super::guc;
use snowflake_core::id::UnixMillis;
use snowflake_registry_client::etcd::url::{self, Url};

/// How long a function of an administrator waits for etcd.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The registry of a function's argument.
///
/// Only superusers may name one: this server opens the connection, and reads the files
/// that the URL names.
fn checked(registry: &str) -> Result<Url, Error> {
    // The role in force, whose privileges count. The role of the session could be that of
    // a superuser who runs another role's code, by ANALYZE of an index, for example.
    // SAFETY: in a transaction.
    if !unsafe { pg_sys::superuser() } {
        return Err(error::etcd::not_superuser());
    }
    let url = Url::parse(registry).map_err(|why| error::etcd::not_a_url(&why))?;
    url.check_files()
        .map_err(|why| error::etcd::not_a_url(&why))?;
    Ok(url)
}

/// Makes a pool. `pool` is the JSON of a stored pool.
pub fn create_pool(registry: &str, pool: &str) -> Result<(), Error> {
    session::create_pool(checked(registry)?, pool)
}

/// Drops a pool that no server uses.
pub fn drop_pool(registry: &str, pool: &str) -> Result<(), Error> {
    session::drop_pool(checked(registry)?, pool)
}

/// Revokes the lease of a worker ID. Returns from when another server can have it.
pub fn revoke(registry: &str, pool: &str, worker: i32) -> Result<UnixMillis, Error> {
    session::revoke(checked(registry)?, pool, worker)
}

/// The horizon of the cluster. `registry` is empty for that of this server's setting.
pub fn horizon(registry: &str) -> Result<UnixMillis, Error> {
    // Who has set it has said where to connect.
    let setting = guc::registry();
    if registry.is_empty() {
        if !url::is_etcd(&setting) {
            return Err(error::cluster_horizon::no_registry_here());
        }
        let url = Url::parse(&setting).map_err(|why| error::etcd::not_a_url(&why))?;
        return session::horizon(url);
    }
    session::horizon(checked(registry)?)
}

/// Drops a server that is lost.
pub fn drop_server(registry: &str, name: &str) -> Result<(), Error> {
    session::drop_server(checked(registry)?, name)
}

/// All that is stored, as JSON.
pub fn read_all(registry: &str) -> Result<String, Error> {
    session::read_all(checked(registry)?)
}

/// Ends the grace period.
pub fn end_grace(registry: &str) -> Result<(), Error> {
    session::end_grace(checked(registry)?)
}

/// Declares that this registry counts.
pub fn declare(registry: &str) -> Result<(), Error> {
    session::declare(checked(registry)?)
}

mod session {
    use std::time::Instant;

    use super::super::backend_wait::Backend;
    use super::*;
    use snowflake_core::lease::etcd::StoredPool;
    use snowflake_core::lease::state::State;
    use snowflake_registry_client::etcd::host::{EtcdError, EtcdRegistry};
    use snowflake_registry_client::libpq::wait::{Waiter, Wanted};
    use snowflake_registry_client::mailbox::{self, Bell, Worker};

    fn run<T: Send + 'static>(
        url: Url,
        pool: &str,
        worker: i32,
        f: impl FnOnce(&mut EtcdRegistry, Instant) -> Result<T, EtcdError> + Send + 'static,
    ) -> Result<T, Error> {
        let no_thread =
            |why| error::etcd::unreachable(&format!("Could not start a thread: {why}."));
        let bell = Bell::new().map_err(no_thread)?;
        let serve = move |worker: Worker<(), Result<T, EtcdError>>| {
            let until = Instant::now() + TIMEOUT;
            worker.reply(f(&mut EtcdRegistry::new(url), until));
        };
        let client = mailbox::start(&bell, serve).map_err(no_thread)?;
        loop {
            bell.silence();
            if let Some(done) = client.take() {
                return done.map_err(|problem| error::etcd::problem(problem, pool, worker));
            }
            if client.has_ended() {
                return Err(error::etcd::unreachable("The thread that asks has ended."));
            }
            // A cancelled query ends the wait by its error.
            let _ = Backend.wait(bell.socket(), Wanted::Read, Instant::now() + TIMEOUT);
        }
    }

    /// Runs what only reads.
    fn read<T: Send + 'static>(
        url: Url,
        f: impl FnOnce(&mut EtcdRegistry, Instant) -> Result<T, EtcdError> + Send + 'static,
    ) -> Result<T, Error> {
        run(url, "", 0, f).map_err(error::etcd::of_reading)
    }

    pub fn create_pool(url: Url, pool: &str) -> Result<(), Error> {
        let pool: StoredPool =
            serde_json::from_str(pool).map_err(|why| error::registry_not_read(&why.to_string()))?;
        let name = pool.pool.name.clone();
        if [&name, &pool.namespace]
            .iter()
            .any(|text| text.contains('/'))
        {
            return Err(error::etcd::slash());
        }
        if pool.pool.spares > 0 {
            return Err(error::etcd::spares());
        }
        run(url, &name, 0, move |host, until| {
            host.create_pool(&pool, until)
        })
    }

    pub fn drop_pool(url: Url, pool: &str) -> Result<(), Error> {
        let name = pool.to_string();
        run(url, pool, 0, move |host, until| {
            host.drop_pool(&name, until)
        })
    }

    pub fn revoke(url: Url, pool: &str, worker: i32) -> Result<UnixMillis, Error> {
        let name = pool.to_string();
        let free = run(url, pool, worker, move |host, until| {
            host.revoke(&name, worker, until)
        })?;
        Ok(free.as_nodes_clock())
    }

    pub fn horizon(url: Url) -> Result<UnixMillis, Error> {
        let horizon = read(url, EtcdRegistry::horizon)?;
        horizon.map_err(|why| error::cluster_horizon::lacking(&why))
    }

    pub fn drop_server(url: Url, name: &str) -> Result<(), Error> {
        let whose = name.to_string();
        let dropped = run(url, "", 0, move |host, until| {
            host.drop_server(&whose, until)
        })?;
        dropped.map_err(|why| error::cluster_horizon::not_dropped(name, &why))
    }

    pub fn read_all(url: Url) -> Result<String, Error> {
        read(url, |host, until| {
            host.read_all(until).map(|all| all.to_string())
        })
    }

    pub fn end_grace(url: Url) -> Result<(), Error> {
        run(url, "", 0, |host, until| {
            host.change_state(until, State::end_grace)
        })
    }

    pub fn declare(url: Url) -> Result<(), Error> {
        run(url, "", 0, |host, until| {
            host.change_state(until, State::declare)
        })
    }
}
