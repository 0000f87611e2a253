//! Calls of etcd's JSON gateway, to one member after the other.
//!
//! Every call has a time-out. A call that fails moves on to the next member, where the
//! caller begins anew; a call whose outcome is not known may have been carried out.

use std::fs;
use std::net::{ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::fmt::rfc2822;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::url::Url;
use snowflake_core::lease::RegistryMillis;

/// A connection that is older is not used again.
const IDLE: Duration = Duration::from_secs(60);

/// The longest answer: some ten thousand rows. The keeper reads it into memory that is not
/// PostgreSQL's, whose lack would end the server.
const ANSWER_MAX: u64 = 16 << 20;

/// How many characters of an answer that is not JSON are shown.
const LINE_MAX: usize = 120;

/// gRPC's code.
const UNAUTHENTICATED: u64 = 16;

/// What etcd says of a token that is too old.
const OLD_TOKENS: [&str; 2] = ["invalid auth token", "revision of auth"];

/// Why a call has no answer.
#[derive(Debug)]
pub enum GatewayError {
    /// The member answers with an error.
    Refused { code: u64, why: String },
    /// There is no answer in time.
    Late,
    /// There is no answer, for this reason: words without a full stop.
    Away(String),
}

/// An answer of a member.
pub struct GatewayAnswer {
    pub body: Value,
    /// The member's clock, rounded up to its next second.
    pub now: Option<RegistryMillis>,
}

pub struct Gateway {
    pub url: Url,
    agent: Option<Agent>,
    token: Option<String>,
    /// The member that is asked, among the hosts.
    at: usize,
    /// This machine's address as the member may see it.
    address: Option<String>,
}

impl Gateway {
    pub const fn new(url: Url) -> Self {
        Self {
            url,
            agent: None,
            token: None,
            at: 0,
            address: None,
        }
    }

    fn host(&self) -> &str {
        self.url.hosts.get(self.at).map_or("", String::as_str)
    }

    /// Asks the next member from now on. Files are read again, since certificates change.
    /// The token stays, since all members know it. A new one costs etcd a slow hash of the
    /// password: servers that wanted one after each time-out would keep a busy etcd busy.
    pub fn next_host(&mut self) {
        self.at = (self.at + 1) % self.url.hosts.len().max(1);
        (self.agent, self.address) = (None, None);
    }

    /// A message about the member that is asked.
    pub fn tell(&self, what: &str) -> String {
        format!("{}: {what}", self.host())
    }

    /// The address from which this machine reaches the member; empty if that is not
    /// known. For a member that has answered, so that the look-up is quick.
    pub fn address(&mut self) -> String {
        if self.address.is_none() {
            self.address = local_address(self.host());
        }
        self.address.clone().unwrap_or_default()
    }

    /// Calls a function of the gateway.
    pub fn call(
        &mut self,
        path: &str,
        body: &Value,
        until: Instant,
    ) -> Result<GatewayAnswer, GatewayError> {
        if self.url.user.is_none() {
            return self.post(path, body, until);
        }
        let had_token = self.token.is_some();
        if !had_token {
            self.token = Some(self.authenticate(until)?);
        }
        match self.post(path, body, until) {
            Err(GatewayError::Refused { code, why }) if had_token && is_old_token(code, &why) => {
                self.token = None;
                self.token = Some(self.authenticate(until)?);
                self.post(path, body, until)
            }
            answer => answer,
        }
    }

    fn authenticate(&mut self, until: Instant) -> Result<String, GatewayError> {
        let Some((user, file)) = self.url.user.clone() else {
            return Ok(String::new());
        };
        let password = read(&file).map_err(GatewayError::Away)?;
        let password = String::from_utf8_lossy(&password);
        let password = password.lines().next().unwrap_or_default();
        let body = json!({ "name": user, "password": password });
        let answer = self.post("/v3/auth/authenticate", &body, until)?;
        let token = answer.body.get("token").and_then(Value::as_str);
        let none = || GatewayError::Away("etcd has given no token".to_string());
        token.map(str::to_string).ok_or_else(none)
    }

    fn post(
        &mut self,
        path: &str,
        body: &Value,
        until: Instant,
    ) -> Result<GatewayAnswer, GatewayError> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(GatewayError::Late);
        }
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => agent(&self.url).map_err(GatewayError::Away)?,
        };
        let agent = self.agent.insert(agent);
        let host = self.url.hosts.get(self.at).map_or("", String::as_str);
        let mut request = agent
            .post(self.url.at(host, path))
            .header("Content-Type", "application/json")
            .config()
            .timeout_global(Some(left))
            .build();
        if let Some(token) = &self.token {
            request = request.header("Authorization", token);
        }
        let mut response = request.send(body.to_string()).map_err(no_answer)?;
        let is_success = response.status().is_success();
        let date = response.headers().get("date");
        let date = date.and_then(|date| date.to_str().ok()).map(str::to_string);
        let text = response.body_mut().with_config().limit(ANSWER_MAX);
        let text = text.read_to_string().map_err(no_answer)?;
        // Some errors have a trailer behind the JSON.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let body = values.next().and_then(Result::ok).unwrap_or_default();
        if !is_success || body.get("error").is_some() {
            let why = body.get("message").or_else(|| body.get("error"));
            let why = why.and_then(Value::as_str).map(str::to_string);
            // Not all errors are JSON.
            let other = || {
                let line: String = text
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(LINE_MAX)
                    .collect();
                format!(
                    "the answer was HTTP status {}, {line}",
                    response.status().as_u16()
                )
            };
            return Err(GatewayError::Refused {
                code: body.get("code").map_or(0, number),
                why: why.unwrap_or_else(other),
            });
        }
        if !body.is_object() {
            return Err(GatewayError::Away(
                "this is not etcd's JSON gateway".to_string(),
            ));
        }
        let now = date.and_then(|date| instant(&date));
        Ok(GatewayAnswer { body, now })
    }
}

fn is_old_token(code: u64, why: &str) -> bool {
    code == UNAUTHENTICATED || OLD_TOKENS.iter().any(|text| why.contains(text))
}

/// The end of the second that HTTP's date shows.
fn instant(date: &str) -> Option<RegistryMillis> {
    let date = rfc2822::parse(date).ok()?;
    Some(RegistryMillis::new(
        date.timestamp().as_millisecond() + 1000,
    ))
}

/// A number of etcd's: 64 bits are a text.
pub fn number(value: &Value) -> u64 {
    let text = value.as_str().and_then(|text| text.parse().ok());
    text.or_else(|| value.as_u64()).unwrap_or_default()
}

/// Bytes as etcd wants them.
pub fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// A text of etcd's; `None` if it is none.
pub fn decoded(value: Option<&Value>) -> Option<String> {
    let bytes = STANDARD.decode(value?.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

fn local_address(host: &str) -> Option<String> {
    let to = host.to_socket_addrs().ok()?.next()?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    // Sends nothing: the kernel only looks for the way.
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

/// Reads a file; fails with words.
fn read(path: &str) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("could not read file \"{path}\": {why}"))
}

fn agent(url: &Url) -> Result<Agent, String> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(url.cacert.is_some())
        // Not those of the server's environment.
        .proxy(None)
        .max_redirects(0)
        .max_idle_age(IDLE)
        .user_agent("snowflake_id");
    if let Some(path) = &url.cacert {
        let roots = RootCerts::new_with_certs(&certificates(path)?);
        let client = url.client.as_ref().map(client).transpose()?;
        let tls = TlsConfig::builder().root_certs(roots).client_cert(client);
        config = config.tls_config(tls.build());
    }
    Ok(config.build().new_agent())
}

fn certificates(path: &str) -> Result<Vec<Certificate<'static>>, String> {
    let bytes = read(path)?;
    let found = parse_pem(&bytes).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(format!("file \"{path}\" has no certificate in PEM format"));
    }
    Ok(found)
}

fn client((cert, key): &(String, String)) -> Result<ClientCert, String> {
    let certificates = certificates(cert)?;
    let none = |_| format!("file \"{key}\" has no private key in PEM format without a passphrase");
    let key = PrivateKey::from_pem(&read(key)?).map_err(none)?;
    Ok(ClientCert::new_with_certs(&certificates, key))
}

/// What went wrong.
fn no_answer(error: ureq::Error) -> GatewayError {
    GatewayError::Away(match error {
        ureq::Error::Timeout(_) => return GatewayError::Late,
        ureq::Error::HostNotFound => "the host name was not found".to_string(),
        ureq::Error::Io(why) => why.to_string(),
        why => why.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let at = instant("Sun, 22 Nov 2026 13:38:55 GMT").unwrap();
        assert_eq!(at.get(), 1_795_354_736_000);
        assert!(instant("yesterday").is_none());
    }

    #[test]
    fn numbers_of_64_bits_are_texts() {
        assert_eq!(number(&json!("18446744073709551615")), u64::MAX);
        assert_eq!(number(&json!(5)), 5);
    }
}
