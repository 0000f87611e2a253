//! `etcd://HOST:PORT,HOST:PORT/PREFIX?OPTION=VALUE&...`: where a registry in etcd is.
//!
//! | option | what |
//! |---|---|
//! | `cacert` | a file with the certificates that sign those of the members; with it the connection is by TLS |
//! | `cert`, `key` | files with the client's certificate and its key |
//! | `user`, `password_file` | etcd's user, and a file whose first line is the password; without `cacert` on this machine only, since the password is sent as it is |
//!
//! Secrets are in files only, so that no text here is one; and no message quotes a value
//! all the same, since somebody may have put a secret there.

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

/// What a text must begin with to be one.
pub const SCHEME: &str = "etcd://";

const DEFAULT_PORT: &str = "2379";
const DEFAULT_PREFIX: &str = "/snowflake_id";

/// All users of the system.
const OTHERS: u32 = 0o007;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Each with its port.
    pub hosts: Vec<String>,
    /// Begins with a slash, and ends with none.
    pub prefix: String,
    pub cacert: Option<String>,
    /// Files of a certificate and its key.
    pub client: Option<(String, String)>,
    /// A user, and a file with the password.
    pub user: Option<(String, String)>,
}

/// Whether the text names a registry in etcd.
pub fn is_etcd(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl Url {
    /// Fails with a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| format!("The text does not begin with {SCHEME}."))?;
        if rest.contains(|char: char| char.is_whitespace() || char.is_control()) {
            return Err("A URL has no spaces.".to_string());
        }
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, prefix) = match place.find('/') {
            Some(at) => place.split_at(at),
            None => (place, ""),
        };
        let hosts = hosts.split(',').map(host).collect::<Result<_, _>>()?;
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() {
            DEFAULT_PREFIX
        } else {
            prefix
        };
        let mut url = Self {
            hosts,
            prefix: prefix.to_string(),
            cacert: None,
            client: None,
            user: None,
        };
        url.take_options(options)?;
        Ok(url)
    }

    fn take_options(&mut self, options: &str) -> Result<(), String> {
        let (mut cert, mut key, mut user, mut password_file) = (None, None, None, None);
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "cacert" => &mut self.cacert,
                "cert" => &mut cert,
                "key" => &mut key,
                "user" => &mut user,
                "password_file" => &mut password_file,
                _ => {
                    return Err(
                        "There is an unknown option: known are cacert, cert, key, user and \
                         password_file."
                            .to_string(),
                    );
                }
            };
            if value.is_empty() {
                return Err(format!("Option {name} has no value."));
            }
            if name != "user" && !value.starts_with('/') {
                return Err(format!("Option {name} needs the absolute path of a file."));
            }
            if place.replace(value.to_string()).is_some() {
                return Err(format!("Option {name} is there twice."));
            }
        }
        self.client = both(cert, key).ok_or("Options cert and key go together.")?;
        self.user =
            both(user, password_file).ok_or("Options user and password_file go together.")?;
        if self.client.is_some() && self.cacert.is_none() {
            return Err("Options cert and key need option cacert.".to_string());
        }
        let is_here = self.hosts.iter().all(|host| is_loopback(host));
        if self.user.is_some() && self.cacert.is_none() && !is_here {
            return Err(
                "Options user and password_file need option cacert, unless all hosts are this \
                 machine: the password would be sent without encryption."
                    .to_string(),
            );
        }
        Ok(())
    }

    /// Whether the files can be read, and those with secrets not by everybody. Fails with
    /// a sentence.
    pub fn check_files(&self) -> Result<(), String> {
        let client = self.client.iter();
        let open = client.clone().map(|(cert, _)| cert).chain(&self.cacert);
        let users = self.user.iter().map(|(_, file)| file);
        let secret = client.map(|(_, key)| key).chain(users);
        let open = open.map(|file| (file, false));
        for (path, is_secret) in open.chain(secret.map(|file| (file, true))) {
            let file = File::open(path).and_then(|file| file.metadata());
            let file = file.map_err(|why| format!("Could not open file \"{path}\": {why}."))?;
            if !file.is_file() {
                return Err(format!("\"{path}\" is not a file."));
            }
            if is_secret && file.mode() & OTHERS != 0 {
                return Err(format!(
                    "Everybody can read or change file \"{path}\", which has a secret."
                ));
            }
        }
        Ok(())
    }

    /// Where the registry is, without options.
    pub fn describe(&self) -> String {
        format!("{SCHEME}{}{}", self.hosts.join(","), self.prefix)
    }

    /// Whether the text names no prefix of its own.
    pub fn has_default_prefix(&self) -> bool {
        self.prefix == DEFAULT_PREFIX
    }

    /// Where a path of the gateway is at a host.
    pub fn at(&self, host: &str, path: &str) -> String {
        let scheme = if self.cacert.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{host}{path}")
    }
}

/// Both or none; `None` if there is one.
fn both(one: Option<String>, other: Option<String>) -> Option<Option<(String, String)>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Some((one, other))),
        (None, None) => Some(None),
        _ => None,
    }
}

/// Whether a host, with its port, is this machine, as an address or as the name that every
/// machine has for itself.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

/// A host with its port.
fn host(text: &str) -> Result<String, String> {
    if text.contains('@') {
        return Err("The user's name is option user, and the password is in a file.".to_string());
    }
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (
            format!("[{address}]"),
            rest.strip_prefix(':')
                .or(rest.is_empty().then_some(DEFAULT_PORT)),
        ),
        None => match text.split_once(':') {
            Some((name, port)) => (name.to_string(), Some(port)),
            None => (text.to_string(), Some(DEFAULT_PORT)),
        },
    };
    let port: Option<u16> = port.and_then(|port| port.parse().ok());
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-._:[]%".contains(char);
    match port.filter(|port| *port > 0) {
        Some(port) if !name.is_empty() && name.chars().all(is_name) => Ok(format!("{name}:{port}")),
        _ => Err("Hosts are given as HOST:PORT, with commas between them.".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn hosts_and_prefix() {
        let url = parsed("etcd://a:1,b,[::1]:3,[::2]/x/y/");
        assert_eq!(url.hosts, ["a:1", "b:2379", "[::1]:3", "[::2]:2379"]);
        assert_eq!(url.prefix, "/x/y");
        assert_eq!(parsed("etcd://a").prefix, "/snowflake_id");
        assert_eq!(parsed("etcd://a/").describe(), "etcd://a:2379/snowflake_id");
        assert_eq!(parsed("etcd://a").at("a:2379", "/v3"), "http://a:2379/v3");
    }

    #[test]
    fn options() {
        let url = parsed("etcd://a?cacert=/c&cert=/d&key=/e&user=u&password_file=/f");
        assert_eq!(url.cacert.as_deref(), Some("/c"));
        assert_eq!(url.client, Some(("/d".to_string(), "/e".to_string())));
        assert_eq!(url.user, Some(("u".to_string(), "/f".to_string())));
        assert_eq!(url.at("a:2379", "/v3"), "https://a:2379/v3");
        assert_eq!(url.describe(), "etcd://a:2379/snowflake_id");
    }

    #[test]
    fn a_password_is_encrypted_or_stays_on_this_machine() {
        let user = "user=u&password_file=/f";
        for hosts in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1",
            "127.1.2.3:4",
            "[::1]",
            "[::1]:5,localhost",
        ] {
            assert!(parsed(&format!("etcd://{hosts}?{user}")).user.is_some());
        }
        for hosts in [
            "a",
            "localhost,a",
            "10.0.0.1",
            "[::2]",
            "localhost.a",
            "127.0.0.1.a",
            "[::]",
            "0.0.0.0",
        ] {
            let why = Url::parse(&format!("etcd://{hosts}?{user}")).unwrap_err();
            assert!(why.contains("need option cacert"), "{why}");
            assert!(
                parsed(&format!("etcd://{hosts}?cacert=/c&{user}"))
                    .user
                    .is_some()
            );
        }
    }

    #[test]
    fn what_is_wrong_is_not_quoted() {
        for text in [
            "postgresql://hunter2",
            "etcd://",
            "etcd://a:hunter2",
            "etcd://u:hunter2@a",
            "etcd://a:0",
            "etcd://a,,b",
            "etcd://a b",
            "etcd://a?password=hunter2",
            "etcd://a?hunter2",
            "etcd://a?cacert=",
            "etcd://a?cacert=hunter2",
            "etcd://a?cacert=/a&cacert=/hunter2",
            "etcd://a?cacert=/a&cert=/hunter2",
            "etcd://a?cert=/a&key=/hunter2",
            "etcd://a?user=hunter2",
            "etcd://a?password_file=/hunter2",
            "etcd://a?user=hunter2&password_file=/hunter2",
        ] {
            let why = Url::parse(text).unwrap_err();
            assert!(why.ends_with('.') && !why.contains("hunter2"), "{why}");
        }
    }
}
