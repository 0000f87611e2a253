//! Why a registry has not answered a server: sentences.

use std::time::Duration;

use pgrx::PgSqlErrorCode::ERRCODE_WARNING;

use crate::error::{Code, Error, joined};
use crate::registry::client_error::{bare, of_postgres};
use crate::registry::etcd_error as etcd;
use snowflake_core::id::Millis;
use snowflake_core::label::duration::rounded;
use snowflake_core::lease::{Answer, RegistryError};
use snowflake_registry_client::etcd::host::EtcdError;
use snowflake_registry_client::libpq::LibpqError;
use snowflake_registry_client::postgres::{Finding, HostReply, OtherHost, PostgresError};
use snowflake_registry_client::request::{RegistryAnswer, RequestError};

/// How long the keeper waits for a reply.
pub struct ReplyWait {
    pub time: Millis,
    /// That is a third of the pool's lease.
    pub is_third: bool,
}

impl ReplyWait {
    pub fn duration(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.time.get()).unwrap_or_default())
    }

    /// Who did not answer, for so long.
    pub fn not_answered(&self, who: &str, pool: &str) -> String {
        let origin = match self.is_third {
            true => format!(", a third of the lease of pool \"{pool}\""),
            false => String::new(),
        };
        format!(
            "The {who} did not answer within {}{origin}.",
            rounded(self.time)
        )
    }
}

/// Why there is no reply: a sentence, or several.
pub fn sentence(
    heard: &RegistryAnswer,
    why: &RequestError,
    pool: &str,
    wait: &ReplyWait,
) -> String {
    let host = match heard.host.as_str() {
        "" => "registry",
        host => host,
    };
    let failure = match why {
        RequestError::Url(why) => return why.clone(),
        RequestError::Etcd(EtcdError::Late(why)) => {
            return joined(
                &wait.not_answered(host, pool),
                &format!("Of its members: {why}."),
            );
        }
        RequestError::Etcd(problem) => return etcd::sentence(problem, pool),
        RequestError::Postgres(failure) => failure,
    };
    match failure {
        // All of them say so.
        PostgresError::Libpq(LibpqError::Connect(message)) => {
            let others = words(&heard.others).into_iter();
            let all: Vec<_> = others.chain([bare(message).to_string()]).collect();
            format!("Could not connect: {}.", all.join("; "))
        }
        PostgresError::Libpq(LibpqError::TimedOut(_)) => {
            joined(&wait.not_answered(host, pool), &others_said(heard))
        }
        PostgresError::Libpq(LibpqError::Lost(message)) => {
            let lost = format!("The connection to the {host} was lost: {}.", bare(message));
            joined(&lost, &others_said(heard))
        }
        failure => joined(&of_postgres(failure), &answered(heard)),
    }
}

/// Which of several hosts has answered, and what others have said; else nothing.
pub fn answered(heard: &RegistryAnswer) -> String {
    match heard.has_several_hosts && !heard.host.is_empty() {
        true => joined(
            &format!("The {} answered.", heard.host),
            &others_said(heard),
        ),
        false => String::new(),
    }
}

fn others_said(heard: &RegistryAnswer) -> String {
    match words(&heard.others) {
        words if words.is_empty() => String::new(),
        words => format!("Of the other hosts: {}.", words.join("; ")),
    }
}

/// What hosts have said whose answer does not count.
fn words(said: &[HostReply]) -> Vec<String> {
    let words = |said: &HostReply| {
        let host = &said.host;
        match &said.reply {
            Ok(reply) => match reply.answer {
                Answer::Refused(RegistryError::Foreign) => format!("{host} is another registry"),
                _ => format!("{host} serves nobody"),
            },
            Err(PostgresError::Libpq(LibpqError::Connect(why))) => bare(why).to_string(),
            Err(why) => format!("{host}: {}", bare(&of_postgres(why))),
        }
    };
    said.iter().map(words).collect()
}

/// Two hosts of the registry take writes.
pub fn two_take_writes(finding: &Finding) -> Error {
    let Finding { used, other, found } = finding;
    let (what, hint) = match found {
        OtherHost::Stopped => (
            "It is an older copy of the registry, and serves nobody.",
            "Stop it, and make it a standby of the one in use.",
        ),
        OtherHost::Copy => (
            "It is a copy of the registry, and serves as well.",
            "Stop the one that must not count at once: both may lease the same worker ID.",
        ),
        OtherHost::Newer => (
            "It is a newer copy of the registry, and this server asks that one from now on.",
            "Stop the older one: it may lease the same worker IDs to servers that ask only it.",
        ),
        OtherHost::Foreign => (
            "It is another registry.",
            "Take it out of \"snowflake_id.registry\": both may lease the same worker IDs.",
        ),
    };
    ERRCODE_WARNING
        .error("snowflake_id: two hosts of \"snowflake_id.registry\" take writes")
        .detail(format!(
            "This server uses the {used}. The {other} takes writes, too. {what}"
        ))
        .hint(hint)
}
