//! The registry and the pool that the settings name.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::server::guc;
use snowflake_registry_client::etcd;
use snowflake_registry_client::libpq::Conninfo;

/// See the head of the file.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target {
    pub registry: String,
    pub pool: String,
}

impl Target {
    /// The target of the server.
    pub fn of_server() -> Option<Self> {
        let (registry, pool) = (guc::registry(), guc::pool());
        (!registry.is_empty()).then_some(Self { registry, pool })
    }

    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }

    /// The registry without secrets.
    pub fn described(&self) -> String {
        if etcd::url::is_etcd(&self.registry) {
            let url = etcd::url::Url::parse(&self.registry);
            return url.map_or_else(|_| "etcd".to_string(), |url| url.describe());
        }
        let server = Conninfo::parse(&self.registry);
        let described = server.map(|server| server.describe()).unwrap_or_default();
        if described.is_empty() {
            return "libpq's default server".to_string();
        }
        described
    }
}
