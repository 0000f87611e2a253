//! The witness: what tells a registry after crash recovery that it has lost nothing.
//!
//! A server that has crashed looks like one whose data directory was set back to a snapshot. A
//! registry must take the one for the other, and then servers without a lease wait. But as long
//! as the machine runs, a crash loses nothing that was written to files: only setting back
//! does. So a registry in this database keeps a file in memory, outside of the data directory. After
//! each commit of a transaction that has changed the registry, and before its caller hears of
//! it, the session notes there where in WAL the commit lies, and one thing that it has changed,
//! with the version that this has now.
//!
//! After crash recovery, the first request looks for the latest commit that is noted. If the
//! version that is stored is that one or a later one, that commit is there. WAL was read from its
//! beginning up to some point, so each commit before that one is there too: nothing was lost of
//! what anybody has heard. In all other cases there is a loss, as without this file: after a
//! boot, in another container, if the file is not there or not whole, if a note is damaged, which
//! may be the latest one. Another timeline is a loss of its own.
//!
//! # The rules
//!
//! - **Versions rise** with each commit that is noted. That of a worker ID's row is its token's
//!   counter and the number of the holder's request, as renewals change them. Whatever has the
//!   registry to itself counts in column `written` of the state.
//! - **Each session writes a slot of its own**, and no commit that was made earlier replaces a
//!   later one.
//! - **No commit is left out.** One that cannot be noted removes the file. Only who has the
//!   registry to itself makes it, while no other commit is under way.
//! - **A file is of one life** of the registry, from one crash recovery to the next: what the data
//!   directory was before it was set back is in no note.
//! - **Who can write it** is the operating system's user of the server, who can write the data
//!   directory as well.
//!
//! # What it cannot know
//!
//! A data directory that another machine has used in between, and that was set back since to
//! what it was when this machine left it, at the same device and inode. Nor tablespaces that were
//! set back without the rest.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::Once;

use pgrx::pg_sys;

use crate::postgres::compat;
use crate::server::server_key;

/// The size of a slot, and of the head before the slots.
const SIZE: usize = 384;
const SIZE_U64: u64 = SIZE as u64;
/// The greatest size of the file. PostgreSQL has at most 2^18 sessions.
const LENGTH_MAX: u64 = ((1 << 18) + 1) * SIZE_U64;

/// What a commit has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    State,
    Row { namespace: String, worker: u32 },
}

/// What a session is to note when its transaction commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub key: Key,
    /// Two versions compare as pairs.
    pub version: (u64, u64),
}

/// What is noted with the commit of this transaction.
struct Pending {
    path: String,
    head: [u8; SIZE],
    note: Note,
    is_alone: bool,
}

thread_local! {
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
}

/// Notes this when the transaction commits. `life` is the state's `clean_since`.
pub fn note(note: Note, life: u128, is_alone: bool) {
    static ONCE: Once = Once::new();
    // SAFETY: a function that lives as long as the process.
    ONCE.call_once(|| unsafe {
        pg_sys::RegisterXactCallback(Some(on_transaction), std::ptr::null_mut());
    });
    let (path, head) = place(life);
    PENDING.replace(Some(Pending {
        path,
        head,
        note,
        is_alone,
    }));
}

/// The path of the file, and the head of one of this life.
fn place(life: u128) -> (String, [u8; SIZE]) {
    let host = server_key::server_key();
    // SAFETY: a variable of this process.
    let database = unsafe { pg_sys::MyDatabaseId }.to_u32();
    let path = format!(
        "/dev/shm/snowflake_id.{:x}-{database}-{:x}-{:x}",
        host.system, host.device, host.inode
    );
    (path, sealed(&format!("{:x} {life:x}", host.boot)))
}

/// Called when the transaction ends, while its locks are held.
unsafe extern "C-unwind" fn on_transaction(event: pg_sys::XactEvent::Type, _arg: *mut c_void) {
    match event {
        pg_sys::XactEvent::XACT_EVENT_COMMIT => end_transaction(true),
        pg_sys::XactEvent::XACT_EVENT_ABORT | pg_sys::XactEvent::XACT_EVENT_PREPARE => {
            end_transaction(false);
        }
        _ => {}
    }
}

/// A transaction that has ended cannot be ended by an error, so none is raised, and no panic leaves
/// this function: its calling convention ends the process instead.
extern "C" fn end_transaction(committed: bool) {
    let Some(pending) = PENDING.take().filter(|_| committed) else {
        return;
    };
    // SAFETY: a variable of this process: the end of the commit that has just been flushed.
    let end = unsafe { pg_sys::XactLastCommitEnd };
    if write(&pending, end, compat::process_index()).is_err() {
        // Whoever finds no file takes nothing for whole.
        let _ = fs::remove_file(&pending.path);
    }
}

/// Writes the slot of this session.
fn write(pending: &Pending, end: u64, index: usize) -> io::Result<()> {
    let slot = sealed(&pending.note.to_text(end));
    let at = SIZE_U64 * (index as u64 + 1);
    let found = open(&pending.path).and_then(|file| {
        let mut head = [0; SIZE];
        file.read_exact_at(&mut head, 0)?;
        let is_mine = head == pending.head && at < file.metadata()?.len();
        is_mine
            .then_some(file)
            .ok_or(io::ErrorKind::InvalidData.into())
    });
    match found {
        Ok(file) => file.write_all_at(&slot, at),
        Err(_) if pending.is_alone => {
            let _ = fs::remove_file(&pending.path);
            let file = make(&pending.path, &pending.head)?;
            file.write_all_at(&slot, at)
        }
        Err(why) => Err(why),
    }
}

/// Makes the file, with room for all sessions: no write fails later for want of it.
fn make(path: &str, head: &[u8; SIZE]) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    // SAFETY: a variable that does not change once the server runs.
    let sessions = unsafe { pg_sys::MaxBackends };
    let length = SIZE_U64 * (u64::try_from(sessions).unwrap_or(0) + 1);
    // SAFETY: an open file.
    let failed = unsafe {
        libc::posix_fallocate(
            file.as_raw_fd(),
            0,
            length.try_into().unwrap_or(libc::off_t::MAX),
        )
    };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    file.write_all_at(head, 0)?;
    Ok(file)
}

/// Opens the file, if it is a file of this user that no other user can write.
fn open(path: &str) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let found = file.metadata()?;
    // SAFETY: asks the kernel.
    let user = unsafe { libc::geteuid() };
    let is_ours = found.is_file()
        && found.uid() == user
        && found.nlink() == 1
        && found.mode() & 0o7777 == 0o600
        && found.len() <= LENGTH_MAX;
    is_ours
        .then_some(file)
        .ok_or(io::ErrorKind::PermissionDenied.into())
}

/// The latest commit that was noted in this life of the registry; `None` if that is not known.
pub fn latest(life: u128) -> Option<Note> {
    // WAL on another volume could be set back by itself.
    let is_elsewhere = |path: &str| fs::symlink_metadata(path).map(|found| found.is_symlink());
    if is_elsewhere("pg_wal").unwrap_or(true) {
        return None;
    }
    let (path, head) = place(life);
    let mut content = Vec::new();
    open(&path).ok()?.read_to_end(&mut content).ok()?;
    latest_of(&content, &head)
}

/// The latest note of a file.
fn latest_of(content: &[u8], head: &[u8; SIZE]) -> Option<Note> {
    let (slots, rest) = content.strip_prefix(head)?.as_chunks::<SIZE>();
    let used = slots
        .iter()
        .filter(|slot| slot.iter().any(|byte| *byte != 0));
    // A damaged one may have been the latest.
    let notes: Option<Vec<_>> = used.map(|slot| Note::from_text(unsealed(slot)?)).collect();
    let (_, latest) = notes?.into_iter().max_by_key(|(end, _)| *end)?;
    rest.is_empty().then_some(latest)
}

impl Note {
    fn to_text(&self, end: u64) -> String {
        let (first, second) = self.version;
        let key = match &self.key {
            Key::State => String::new(),
            Key::Row { namespace, worker } => format!("{worker} {namespace}"),
        };
        format!("{end} {first} {second} {key}")
    }

    fn from_text(text: &str) -> Option<(u64, Self)> {
        let mut parts = text.splitn(5, ' ');
        let mut number = || parts.next()?.parse().ok();
        let (end, version) = (number()?, (number()?, number()?));
        let key = match (parts.next()?, parts.next()) {
            ("", None) => Key::State,
            (worker, namespace) => Key::Row {
                worker: worker.parse().ok()?,
                namespace: namespace?.to_string(),
            },
        };
        Some((end, Self { key, version }))
    }
}

/// A text with its check sum.
fn sealed(text: &str) -> [u8; SIZE] {
    let mut sealed = [0; SIZE];
    let (sum, content) = sealed.split_at_mut(size_of::<u64>());
    // No text is longer: see `pools::NAME_LIMIT`.
    for (to, from) in content.iter_mut().zip(text.bytes()) {
        *to = from;
    }
    sum.copy_from_slice(&checksum(content).to_ne_bytes());
    sealed
}

/// The text, if its check sum is right.
fn unsealed(sealed: &[u8; SIZE]) -> Option<&str> {
    let (sum, content) = sealed.split_first_chunk()?;
    let text = str::from_utf8(content).ok()?.trim_end_matches('\0');
    (u64::from_ne_bytes(*sum) == checksum(content)).then_some(text)
}

fn checksum(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> Note {
        Note {
            key: Key::Row {
                namespace: "name space ".to_string() + &"x".repeat(244),
                worker: u32::MAX,
            },
            version: (u64::MAX, number),
        }
    }

    fn state() -> Note {
        Note {
            key: Key::State,
            version: (7, 0),
        }
    }

    /// A file with these slots.
    fn file(slots: &[[u8; SIZE]]) -> Vec<u8> {
        [sealed("head")]
            .iter()
            .chain(slots)
            .flatten()
            .copied()
            .collect()
    }

    fn slot(end: u64, note: &Note) -> [u8; SIZE] {
        sealed(&note.to_text(end))
    }

    #[test]
    fn the_latest_commit_is_found() {
        let head = sealed("head");
        let empty = [0; SIZE];
        let slots = [
            empty,
            slot(u64::MAX - 1, &state()),
            slot(u64::MAX, &row(3)),
            slot(4, &row(9)),
        ];
        assert_eq!(latest_of(&file(&slots), &head), Some(row(3)));
        assert_eq!(latest_of(&file(&slots[..2]), &head), Some(state()));
        // Nothing is known: no note, another life, no file.
        assert_eq!(latest_of(&file(&[empty]), &head), None);
        assert_eq!(latest_of(&file(&slots), &sealed("another")), None);
        assert_eq!(latest_of(&[], &head), None);
    }

    #[test]
    fn a_damaged_slot_tells_nothing_of_the_others() {
        let head = sealed("head");
        let whole = file(&[slot(9, &state()), slot(4, &row(9))]);
        for at in SIZE..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(latest_of(&damaged, &head), None, "byte {at}");
        }
        assert_eq!(latest_of(&whole[..whole.len() - 1], &head), None);
    }
}
