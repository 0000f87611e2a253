//! The options by which libpq reaches a server.

use std::ffi::{CStr, CString, c_char};
use std::fmt;
use std::ptr;

use pq_sys::PQconninfoOption;

use super::{LibpqError, text};

/// The name that connections have in `pg_stat_activity` of the other server, unless
/// their options give another one.
const APPLICATION_NAME: &CStr = c"snowflake_id";

/// A server to connect to: libpq's options by keyword, in a conninfo or URL or one by
/// one. What they leave open comes from libpq's usual places: a service file, the
/// environment, a password file.
///
/// No output shows the options; [`Conninfo::describe`] shows those that are not secret.
#[derive(Clone)]
pub struct Conninfo {
    options: Vec<(CString, CString)>,
}

impl Conninfo {
    /// The server of a conninfo or a URL.
    ///
    /// Fails with [`LibpqError::Conninfo`], without libpq's message: it quotes a part of the
    /// text, which may be a part of the password.
    pub fn parse(conninfo: &str) -> Result<Self, LibpqError> {
        let conninfo = CString::new(conninfo).map_err(|_| LibpqError::Conninfo)?;
        let options = OptionList::parse(&conninfo)?;
        Ok(Self {
            options: options.given().collect(),
        })
    }

    /// The server of options by keyword, such as those of a foreign server. Options that
    /// libpq does not know are left out. Fails with [`LibpqError::Conninfo`] on a value with
    /// the character zero.
    pub fn from_options<'a>(
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LibpqError> {
        let known = OptionList::parse(c"")?;
        let options = options.into_iter().filter(|(keyword, _)| {
            known
                .keywords()
                .any(|known| known.to_bytes() == keyword.as_bytes())
        });
        let options = options
            .map(|(keyword, value)| Ok((CString::new(keyword)?, CString::new(value)?)))
            .collect::<Result<_, std::ffi::NulError>>();
        Ok(Self {
            options: options.map_err(|_| LibpqError::Conninfo)?,
        })
    }

    /// The server with further options, as [`Self::from_options`] takes them; of two with
    /// the same keyword the latter counts.
    pub fn with<'a>(
        mut self,
        options: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LibpqError> {
        self.options.extend(Self::from_options(options)?.options);
        Ok(self)
    }

    /// Host, port and database (and the service, if there is one) for messages and
    /// views: `host=a port=5432 dbname=b`. Empty if none of them is given.
    pub fn describe(&self) -> String {
        let shown = [c"service", c"host", c"hostaddr", c"port", c"dbname"];
        let mut parts = Vec::new();
        for keyword in shown {
            let Some(value) = self.get(keyword) else {
                continue;
            };
            // A whole conninfo in the place of a database's name would show a password.
            if !value.contains(['=', '@']) {
                parts.push(format!("{}={value}", keyword.to_string_lossy()));
            }
        }
        parts.join(" ")
    }

    /// Whether one of the options is a secret: one that libpq itself never shows, or what
    /// stands in the place of a database's name and is a conninfo.
    pub fn has_secret(&self) -> bool {
        let Ok(known) = OptionList::parse(c"") else {
            return true;
        };
        let is_secret = |keyword: &CStr| known.secrets().any(|secret| secret == keyword);
        let nested = |value: &CStr| {
            let text = value.to_string_lossy();
            let looks_so = text.contains("password") || text.contains("://");
            Self::parse(&text).map_or(looks_so, |it| it.has_secret())
        };
        let mut options = self.options.iter();
        options.any(|(keyword, value)| {
            is_secret(keyword) || keyword.as_c_str() == c"dbname" && nested(value)
        })
    }

    fn get(&self, keyword: &CStr) -> Option<String> {
        let (_, value) = self
            .options
            .iter()
            .rev()
            .find(|(known, _)| known.as_c_str() == keyword)?;
        Some(value.to_string_lossy().into_owned())
    }

    /// All options of a connection; of two with the same keyword the latter counts.
    pub(super) fn all_options(&self) -> Vec<(CString, CString)> {
        let option = |keyword: &CStr, value: &CStr| (keyword.to_owned(), value.to_owned());
        let mut options = vec![option(c"fallback_application_name", APPLICATION_NAME)];
        options.extend(self.options.iter().cloned());
        options.push(option(c"client_encoding", c"UTF8"));
        options
    }

    /// A server for each host that these options list; itself, if that is one. One port may be
    /// that of all hosts.
    pub(super) fn of_each_host(&self, all: &OptionList) -> Vec<Self> {
        const LISTS: [&CStr; 3] = [c"host", c"hostaddr", c"port"];
        let lists = LISTS.map(|keyword| all.values(keyword));
        let [names, addresses, ports] = &lists;
        let count = names.len().max(addresses.len());
        if count < 2 {
            return vec![self.clone()];
        }
        let of_host = |at: usize| {
            let others = self.options.iter();
            let others = others.filter(|(keyword, _)| !LISTS.contains(&keyword.as_c_str()));
            let value = |list: &[String], at: usize| {
                let value = list.get(at).filter(|value| !value.is_empty());
                // The texts come from C.
                value.and_then(|value| CString::new(value.as_str()).ok())
            };
            let port = if ports.len() == 1 { 0 } else { at };
            let own = [value(names, at), value(addresses, at), value(ports, port)];
            let own = LISTS.into_iter().zip(own);
            let own = own.filter_map(|(keyword, value)| Some((keyword.to_owned(), value?)));
            Self {
                options: others.cloned().chain(own).collect(),
            }
        };
        (0..count).map(of_host).collect()
    }
}

impl fmt::Debug for Conninfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Conninfo({})", self.describe())
    }
}

/// A list of options of libpq's, which is freed when this value is dropped; or NULL.
pub(super) struct OptionList(pub(super) *mut PQconninfoOption);

impl OptionList {
    fn parse(conninfo: &CStr) -> Result<Self, LibpqError> {
        let mut message: *mut c_char = ptr::null_mut();
        // SAFETY: a NUL-terminated text, and a place for the message.
        let list = unsafe { pq_sys::PQconninfoParse(conninfo.as_ptr(), &raw mut message) };
        // SAFETY: libpq allocated the message, or it is NULL, which is allowed.
        unsafe { pq_sys::PQfreemem(message.cast()) };
        if list.is_null() {
            return Err(LibpqError::Conninfo);
        }
        Ok(Self(list))
    }

    fn iter(&self) -> impl Iterator<Item = (&CStr, Option<&CStr>)> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            // SAFETY: the list ends with an option without a keyword; the texts live as
            // long as the list.
            unsafe {
                let option = next.as_ref()?;
                if option.keyword.is_null() {
                    return None;
                }
                next = next.add(1);
                let value = (!option.val.is_null()).then(|| CStr::from_ptr(option.val));
                Some((CStr::from_ptr(option.keyword), value))
            }
        })
    }

    /// The keywords of passwords, for which libpq asks that an application hides them.
    fn secrets(&self) -> impl Iterator<Item = &CStr> {
        let mut next = self.0;
        std::iter::from_fn(move || {
            loop {
                // SAFETY: as in `iter`.
                unsafe {
                    let option = next.as_ref()?;
                    if option.keyword.is_null() {
                        return None;
                    }
                    next = next.add(1);
                    if !option.dispchar.is_null() && CStr::from_ptr(option.dispchar) == c"*" {
                        return Some(CStr::from_ptr(option.keyword));
                    }
                }
            }
        })
    }

    fn keywords(&self) -> impl Iterator<Item = &CStr> {
        self.iter().map(|(keyword, _)| keyword)
    }

    /// The options that have a value.
    fn given(&self) -> impl Iterator<Item = (CString, CString)> {
        self.iter()
            .filter_map(|(keyword, value)| Some((keyword.to_owned(), value?.to_owned())))
    }

    /// An option that is a list, with commas between its values; empty if not given.
    fn values(&self, wanted: &CStr) -> Vec<String> {
        let value = self.iter().find(|(keyword, _)| *keyword == wanted);
        // SAFETY: a NUL-terminated text of the list.
        let value = value.and_then(|(_, value)| Some(unsafe { text(value?.as_ptr()) }));
        value.map_or_else(Vec::new, |value| {
            value.split(',').map(str::to_string).collect()
        })
    }
}

impl Drop for OptionList {
    fn drop(&mut self) {
        // SAFETY: nobody uses the list any more; NULL is allowed.
        unsafe { pq_sys::PQconninfoFree(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hosts of a conninfo, as libpq lists them.
    fn hosts(conninfo: &str) -> Vec<String> {
        let server = Conninfo::parse(conninfo).unwrap();
        let hosts = crate::libpq::hosts(&server).unwrap();
        hosts.iter().map(Conninfo::describe).collect()
    }

    #[test]
    fn each_host_is_a_server_of_its_own() {
        assert_eq!(
            hosts("host=a,b,a port=1,2,3 dbname=d user=u"),
            [
                "host=a port=1 dbname=d",
                "host=b port=2 dbname=d",
                "host=a port=3 dbname=d"
            ]
        );
        assert_eq!(
            hosts("hostaddr=1.1.1.1,2.2.2.2 port=7"),
            ["hostaddr=1.1.1.1 port=7", "hostaddr=2.2.2.2 port=7"]
        );
        assert_eq!(
            hosts("host=a,b hostaddr=1.1.1.1,2.2.2.2"),
            [
                "host=a hostaddr=1.1.1.1 port=5432",
                "host=b hostaddr=2.2.2.2 port=5432"
            ]
        );
        assert_eq!(hosts("postgresql://a:1,b:2/d").len(), 2);
        assert_eq!(hosts("host=a port=1"), ["host=a port=1"]);
        assert_eq!(hosts("port=1"), ["port=1"]);
    }

    #[test]
    fn what_libpq_refuses_is_told() {
        for (conninfo, why) in [
            ("host=a,b port=1,2,3", "3 port numbers"),
            ("service=there_is_none", "there_is_none"),
            ("host=a,b sslmode=none", "sslmode"),
        ] {
            let server = Conninfo::parse(conninfo).unwrap();
            let LibpqError::Connect(message) = crate::libpq::hosts(&server).unwrap_err() else {
                panic!("{conninfo}");
            };
            assert!(message.contains(why), "{message}");
        }
    }

    #[test]
    fn secrets_are_not_described() {
        let server = Conninfo::parse("postgresql://u:hunter2@a:1,b:2/d?sslpassword=hunter2");
        assert_eq!(
            server.as_ref().unwrap().describe(),
            "host=a,b port=1,2 dbname=d"
        );
        assert!(!format!("{:?}", server.unwrap()).contains("hunter2"));
        let nested = Conninfo::parse("dbname='host=a password=hunter2' port=1").unwrap();
        assert_eq!(nested.describe(), "port=1");
        let url = Conninfo::parse("dbname=postgresql://u:hunter2@a/d port=1").unwrap();
        assert_eq!(url.describe(), "port=1");
    }

    #[test]
    fn secrets_are_found() {
        for text in [
            "password=hunter2",
            "host=a sslpassword=hunter2",
            "postgresql://u:hunter2@a/d",
            "postgresql://a/d?password=hunter2",
            "dbname='host=a password=hunter2'",
            "dbname=postgresql://u:hunter2@a/d",
            "dbname='password=my hunter2'",
        ] {
            assert!(Conninfo::parse(text).unwrap().has_secret(), "{text}");
        }
        for text in [
            "",
            "host=a user=password passfile=/password",
            "postgresql://u@a/d?sslkey=/k",
            "dbname='host=a'",
        ] {
            assert!(!Conninfo::parse(text).unwrap().has_secret(), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_parsed_is_not_quoted() {
        for text in [
            "password=my hunter2",
            "hunter2",
            "postgresql://u:hunter2%00@a",
            "a=b",
            "\0",
        ] {
            let error = Conninfo::parse(text).unwrap_err();
            assert_eq!(error, LibpqError::Conninfo);
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn options_of_others_are_left_out() {
        let options = [("host", "a"), ("fetch_size", "10"), ("port", "7")];
        assert_eq!(
            Conninfo::from_options(options).unwrap().describe(),
            "host=a port=7"
        );
    }
}
