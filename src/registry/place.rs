//! Which registry a view or a function is about.
//!
//! Without an argument, it is the registry that this server uses: that of this database, if it
//! has pools; else that of `snowflake_id.registry`. Who has set that has said where to connect. A
//! registry in another database is administrated there: sessions of other servers only read it.
//! A role names another registry only if it is a superuser, since this server opens the
//! connection, and reads the files that the URL names. Views open a connection for members of
//! pg_monitor only.

use std::time::{Duration, Instant};

use pgrx::pg_sys;

use crate::postgres::{backend_wait::Backend, catalog, compat, spi};
use crate::registry::error::{self, Error};
use crate::registry::{Purpose, Registry, client_error, etcd_admin, etcd_error};
use crate::server::{guc, server_key};
use snowflake_registry_client::etcd::url::{self, Url};
use snowflake_registry_client::libpq::{self, Conninfo};
use snowflake_registry_client::postgres;

/// How long a session waits for a registry in another database.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What the registry of this database has stored, in the form of
/// [`EtcdRegistry::read_all`](snowflake_registry_client::etcd::host::EtcdRegistry::read_all), and
/// whether the role of this name may lease.
const HERE: &str = "SELECT jsonb_build_object('now', now, 'state', state, 'pools', pools, \
        'workers', (SELECT coalesce(jsonb_agg(jsonb_build_object('namespace', w.namespace, 'row', w.lease)), '[]') \
            FROM unnest(namespaces, leases) AS w (namespace, lease)), \
        'in_recovery', pg_is_in_recovery(), \
        'may_lease', has_function_privilege($1::name, '_snowflake.lease(text, jsonb)', 'EXECUTE')) \
    FROM _snowflake.here";

/// Where a function of an administrator does its work.
pub enum Place {
    /// In the registry of this database, which may not exist yet.
    Here,
    Etcd(Url),
}

impl Place {
    /// The registry of a function's argument, which is empty if there is none.
    pub fn of(named: &str) -> Result<Self, Error> {
        if !named.is_empty() {
            // The role in force, whose privileges count. The role of the session could be that
            // of a superuser who runs another role's code, by ANALYZE of an index, for example.
            // SAFETY: in a transaction.
            if !unsafe { pg_sys::superuser() } {
                return Err(etcd_error::not_superuser());
            }
            let url = Url::parse(named).map_err(|why| etcd_error::not_a_url(&why))?;
            url.check_files()
                .map_err(|why| etcd_error::not_a_url(&why))?;
            return Ok(Self::Etcd(url));
        }
        let setting = guc::registry();
        if setting.is_empty() || has_pools()? {
            return Ok(Self::Here);
        }
        if !url::is_etcd(&setting) {
            return match is_here(&setting)? {
                true => Ok(Self::Here),
                false => Err(error::registry_elsewhere()),
            };
        }
        let url = Url::parse(&setting).map_err(|why| etcd_error::not_a_url(&why))?;
        Ok(Self::Etcd(url))
    }
}

/// Whether a setting that names no etcd leads to this database, which is to be a registry.
fn is_here(setting: &str) -> Result<bool, Error> {
    let database = spi::value("SELECT pg_catalog.current_database()", &[])?;
    let here = (
        server_key::postmaster_start(),
        &*database.unwrap_or_default(),
    );
    postgres::is_database(setting, here, Instant::now() + TIMEOUT, &mut Backend)
        .map_err(|why| error::registry_unreachable(&client_error::of_postgres(&why)))
}

/// Whether the registry of this database has a pool.
pub fn has_pools() -> Result<bool, Error> {
    let found =
        Registry::with(Purpose::Read)?.value("SELECT true FROM _snowflake.pools LIMIT 1", &[]);
    Ok(found?.is_some())
}

/// What the registry of this database has stored, for servers that show it in their views; `None`
/// if it has no pool.
pub fn read_here() -> Result<Option<String>, Error> {
    Registry::with(Purpose::Read)?.value(HERE, &[&catalog::role_name(compat::user())])
}

/// What the registry of the setting has stored; `None` if there is none. Called where this
/// database has none.
pub fn read_elsewhere() -> Result<Option<String>, Error> {
    let setting = guc::registry();
    if setting.is_empty() {
        return Ok(None);
    }
    // SAFETY: looks up the catalogs.
    let may_connect =
        unsafe { pg_sys::has_privs_of_role(compat::user(), pg_sys::ROLE_PG_MONITOR.into()) };
    if !may_connect {
        return Err(error::registry_not_shown());
    }
    if url::is_etcd(&setting) {
        let url = Url::parse(&setting).map_err(|why| etcd_error::not_a_url(&why))?;
        return etcd_admin::read_all(url);
    }
    let until = Instant::now() + TIMEOUT;
    postgres::read_stored(&setting, until, &mut Backend)
        .map_err(|why| error::registry_unreachable(&client_error::of_postgres(&why)))
}

/// What a host of the setting's registry has stored, or why it cannot be read.
pub struct HostAnswer {
    pub host: String,
    pub stored: Result<Option<String>, String>,
}

/// Asks each host of the setting's registry, the members of an etcd included. Nothing is
/// changed, and a standby is asked as well.
pub fn ask_hosts() -> Result<Vec<HostAnswer>, Error> {
    let setting = guc::registry();
    if setting.is_empty() {
        return Ok(Vec::new());
    }
    if url::is_etcd(&setting) {
        let url = Url::parse(&setting).map_err(|why| etcd_error::not_a_url(&why))?;
        let ask = |host: &String| {
            let hosts = vec![host.clone()];
            let member = Url {
                hosts,
                ..url.clone()
            };
            let host = member.describe();
            let stored = etcd_admin::read_all(member).map_err(|why| why.in_a_line());
            HostAnswer { host, stored }
        };
        return Ok(url.hosts.iter().map(ask).collect());
    }
    let ask = |host: &Conninfo| {
        let stored = postgres::read_any(host, Instant::now() + TIMEOUT, &mut Backend);
        let stored = stored.map_err(|why| client_error::of_postgres(&why));
        let host = host.describe();
        HostAnswer { host, stored }
    };
    let unread = |why| error::registry_unreachable(&client_error::of_postgres(&why));
    let hosts = Conninfo::parse(&setting).and_then(|server| libpq::hosts(&server));
    let hosts = hosts.map_err(|why| unread(why.into()))?;
    Ok(hosts.iter().map(ask).collect())
}
