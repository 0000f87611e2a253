//! The start file: what the server remembers of its last start, in its data directory.
//!
//! A base backup, `pg_rewind`, a snapshot and a cloned machine copy the worker ID with
//! the configuration, and two servers with one worker ID issue the same IDs. They copy
//! this file too. So a server that finds that it last started elsewhere, with the worker
//! ID that it has now, warns that it may be a copy. It cannot know: a server that was
//! moved looks the same. So the server starts, and writes the file anew.
//!
//! A start that finds the file as the last one left it says nothing: a restart, a restart
//! after a crash. Nor does a start without the file.
//!
//! The file also tells the next start which one was the last that followed a crash. A registry
//! in this server that was not asked in between needs to know.
//!
//! What tells places apart: `/etc/machine-id` and the host name (cloned machines often
//! have the same ID, containers the same name), the path of the data directory, and its
//! inode. The number of its device counts only until the machine boots again, since a
//! boot may number devices anew.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use pgrx::PgSqlErrorCode::{ERRCODE_IO_ERROR, ERRCODE_WARNING};
use pgrx::pg_sys;

use crate::postgres::time;
use crate::server::error::{Code, Error};
use crate::server::os_clock;
use snowflake_core::id::WorkerId;

// A server's working directory is its data directory.
const FILE: &CStr = c"snowflake_id.start";
const NEW_FILE: &CStr = c"snowflake_id.start.tmp";

/// No file of ours is longer.
const LENGTH_MAX: u64 = 65_536;

const HEAD: &str = "\
# Where this server last started, and with which worker ID of snowflake_id. The server
# writes this file at each start. A copy of the data directory has the file too: if it
# starts elsewhere with the same worker ID, it warns that it may be a copy.
";

/// Looks whether this may be a copy, and remembers this start. Called in the postmaster,
/// when it starts and after a crash.
pub fn note_start(worker: Option<WorkerId>, clean_since: u128) {
    // SAFETY: a variable of this process.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return;
    }
    let now = StartRecord {
        clean_since: format!("{clean_since:x}"),
        ..StartRecord::now(worker)
    };
    if let Some(last) = read()
        && let Some(warning) = may_be_copy(&last, &now)
    {
        warning.warning();
    }
    if let Err(error) = write(&now) {
        let message = format!(
            "could not write file \"{}\": {error}",
            FILE.to_string_lossy()
        );
        ERRCODE_IO_ERROR.error(message).log("");
        // What a start before this one has noted may be false by now.
        let _ = fs::remove_file(FILE.to_str().unwrap_or_default());
    }
}

/// A start of a server. Texts are in one line each; empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StartRecord {
    machine_id: String,
    host_name: String,
    /// Each boot of the machine has a different one.
    boot_id: String,
    data_directory: String,
    device: String,
    inode: String,
    system_identifier: String,
    /// Empty if it is not set.
    worker_id: String,
    /// When, as text for a message.
    started_at: String,
    /// See [`crate::server::server_key::clean_since`].
    clean_since: String,
}

/// What the last start has noted; `None` if it has noted nothing.
pub fn clean_since() -> Option<u64> {
    let number = u64::from_str_radix(&read()?.clean_since, 16).ok();
    number.filter(|number| *number != 0)
}

impl StartRecord {
    fn now(worker: Option<WorkerId>) -> Self {
        let first_line = |path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            in_a_line(text.lines().next().unwrap_or_default().trim())
        };
        let directory = fs::metadata(".");
        let number = |of: fn(&fs::Metadata) -> u64| {
            directory
                .as_ref()
                .map_or_else(|_| String::new(), |directory| of(directory).to_string())
        };
        // SAFETY: a text of the server's that is set before libraries are loaded, and a
        // number that was read with the control file.
        let (path, system) = unsafe {
            let path = CStr::from_ptr(pg_sys::DataDir).to_string_lossy();
            (path, pg_sys::GetSystemIdentifier())
        };
        Self {
            machine_id: first_line("/etc/machine-id"),
            host_name: host_name(),
            boot_id: first_line("/proc/sys/kernel/random/boot_id"),
            data_directory: in_a_line(&path),
            device: number(MetadataExt::dev),
            inode: number(MetadataExt::ino),
            system_identifier: system.to_string(),
            worker_id: worker.map_or_else(String::new, |worker| worker.get().to_string()),
            started_at: in_a_line(&time::display(os_clock::wall().millis())),
            clean_since: String::new(),
        }
    }

    /// Each field with its name in the file.
    fn fields(&mut self) -> [(&'static str, &mut String); 10] {
        [
            ("machine_id", &mut self.machine_id),
            ("host_name", &mut self.host_name),
            ("boot_id", &mut self.boot_id),
            ("data_directory", &mut self.data_directory),
            ("device", &mut self.device),
            ("inode", &mut self.inode),
            ("system_identifier", &mut self.system_identifier),
            ("worker_id", &mut self.worker_id),
            ("started_at", &mut self.started_at),
            ("clean_since", &mut self.clean_since),
        ]
    }

    fn to_text(&self) -> String {
        let mut text = HEAD.to_string();
        for (name, value) in self.clone().fields() {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    /// A field that is not in the text is unknown, and lines of later versions are
    /// skipped.
    fn from_text(text: &str) -> Self {
        let mut start = Self::default();
        for line in text.lines() {
            let Some((name, value)) = line.split_once(" = ") else {
                continue;
            };
            for (known, field) in start.fields() {
                if known == name {
                    *field = value.to_string();
                }
            }
        }
        start
    }

    /// What tells that the other start was at another place: names for a message.
    fn differs_by(&self, other: &Self) -> Vec<&'static str> {
        let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
        let same_boot = !self.boot_id.is_empty() && self.boot_id == other.boot_id;
        let all = [
            (differ(&self.machine_id, &other.machine_id), "machine ID"),
            (differ(&self.host_name, &other.host_name), "host name"),
            (differ(&self.data_directory, &other.data_directory), "path"),
            (differ(&self.inode, &other.inode), "inode of the directory"),
            (
                same_boot && differ(&self.device, &other.device),
                "device of the directory",
            ),
        ];
        all.into_iter()
            .filter_map(|(differs, name)| differs.then_some(name))
            .collect()
    }
}

/// The warning that the server may be a copy of the one that started last.
fn may_be_copy(last: &StartRecord, now: &StartRecord) -> Option<Error> {
    let differs = last.differs_by(now);
    let worker = &now.worker_id;
    if differs.is_empty()
        || worker.is_empty()
        || *worker != last.worker_id
        || now.system_identifier != last.system_identifier
    {
        return None;
    }
    let message = format!(
        "snowflake_id: this server may be a copy of another one, with the same worker ID {worker}"
    );
    let detail = format!(
        "The data directory was last started at {}, in \"{}\" on host \"{}\"; now it is \
         started in \"{}\" on host \"{}\". What differs: {}. Two servers with the same worker ID \
         issue the same IDs.",
        last.started_at,
        last.data_directory,
        last.host_name,
        now.data_directory,
        now.host_name,
        differs.join(", "),
    );
    let hint = "If the other server runs, or may run again: stop it, or set \
                \"snowflake_id.worker_id\" of this one to a number that no other server has, and \
                restart it. If this server was moved, all is well. If its data is an earlier state of \
                the server that it was, call snowflake_advance() for each generator first.";
    Some(ERRCODE_WARNING.error(message).detail(detail).hint(hint))
}

/// The last start, if the server remembers one.
fn read() -> Option<StartRecord> {
    let mut text = String::new();
    let file = fs::File::open(FILE.to_str().ok()?).ok()?;
    file.take(LENGTH_MAX).read_to_string(&mut text).ok()?;
    Some(StartRecord::from_text(&text))
}

/// Replaces the file as a whole, durably: a crash leaves the old file or the new one.
fn write(start: &StartRecord) -> io::Result<()> {
    // Others may read it if they may read the data directory, as with all its files.
    // SAFETY: a variable that the postmaster sets before it loads libraries.
    let mode = unsafe { pg_sys::data_directory_mode }.cast_unsigned() & 0o666;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(NEW_FILE.to_str().map_err(io::Error::other)?)?;
    file.write_all(start.to_text().as_bytes())?;
    drop(file);
    // SAFETY: NUL-terminated names. PostgreSQL flushes the file, renames it and flushes
    // the directory; at this level it reports a failure as a line in the log.
    unsafe {
        pg_sys::durable_rename(NEW_FILE.as_ptr(), FILE.as_ptr(), pg_sys::LOG.cast_signed());
    }
    Ok(())
}

/// The name of this machine; empty if it cannot be read.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the last byte is left for the NUL.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    if failed {
        return String::new();
    }
    in_a_line(&text.to_string_lossy())
}

/// A text as one line of the file.
fn in_a_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> StartRecord {
        StartRecord {
            machine_id: "a1".to_string(),
            host_name: "one".to_string(),
            boot_id: "b1".to_string(),
            data_directory: "/data = 1".to_string(),
            device: "7".to_string(),
            inode: "8".to_string(),
            system_identifier: "9".to_string(),
            worker_id: "0".to_string(),
            started_at: "2026-11-21 02:28:09.165 UTC".to_string(),
            clean_since: "1f".to_string(),
        }
    }

    #[test]
    fn the_text_is_read_as_it_was_written() {
        assert_eq!(StartRecord::from_text(&start().to_text()), start());
        assert_eq!(StartRecord::from_text(""), StartRecord::default());
        let later = start().to_text() + "of_a_later_version = 1\n";
        assert_eq!(StartRecord::from_text(&later), start());
        assert_eq!(in_a_line("a\nworker_id = 1"), "a?worker_id = 1");
    }

    /// What a change of one field does.
    fn after(change: impl FnOnce(&mut StartRecord)) -> Vec<&'static str> {
        let mut changed = start();
        change(&mut changed);
        start().differs_by(&changed)
    }

    #[test]
    fn places_differ() {
        let text = || "other".to_string();
        assert!(after(|_| ()).is_empty());
        assert_eq!(after(|it| it.machine_id = text()), ["machine ID"]);
        assert_eq!(after(|it| it.host_name = text()), ["host name"]);
        assert_eq!(after(|it| it.data_directory = text()), ["path"]);
        assert_eq!(after(|it| it.inode = text()), ["inode of the directory"]);
        assert_eq!(after(|it| it.device = text()), ["device of the directory"]);
        // A boot may number devices anew.
        let booted = after(|it| (it.boot_id, it.device) = (text(), text()));
        assert!(booted.is_empty());
        // What is not known says nothing.
        assert!(after(|it| it.machine_id.clear()).is_empty());
        assert!(after(|it| it.boot_id.clear()).is_empty());
    }

    #[test]
    fn only_the_same_worker_id_warns() {
        let elsewhere = || StartRecord {
            data_directory: "/copy".to_string(),
            ..start()
        };
        let warns = |now: StartRecord| may_be_copy(&start(), &now).is_some();
        assert!(warns(elsewhere()));
        assert!(!warns(start()));
        for worker in ["1", ""] {
            let worker_id = worker.to_string();
            assert!(!warns(StartRecord {
                worker_id,
                ..elsewhere()
            }));
        }
        let system_identifier = "10".to_string();
        assert!(!warns(StartRecord {
            system_identifier,
            ..elsewhere()
        }));
        assert!(may_be_copy(&StartRecord::default(), &start()).is_none());
        let unset = StartRecord {
            worker_id: String::new(),
            ..start()
        };
        assert!(
            may_be_copy(
                &unset,
                &StartRecord {
                    worker_id: String::new(),
                    ..elsewhere()
                }
            )
            .is_none()
        );
    }
}
