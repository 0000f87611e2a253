//! A client of PostgreSQL servers, by libpq: for a server that asks other servers.
//!
//! - Nothing here waits by itself, except for the look-up of a host name (see below). All
//!   waits are those of a [`Waiter`]: a session's, which interrupts end, or a thread's.
//! - Parameters and results are text in UTF-8.
//! - Notices of the other server are dropped; [`Connection::has_warned`] tells of warnings.
//! - No error and no description has a password: libpq's messages have none, except for
//!   what it says of a conninfo that it cannot parse, which is left out here.
//!
//! **Threads.** A thread that a background worker has started may connect and ask, under
//! these rules:
//! - It blocks all signals before it starts. (libpq blocks SIGPIPE by itself while it
//!   writes.)
//! - It uses [`wait::Thread`], calls nothing of pgrx, and raises no PostgreSQL error.
//! - A [`Connection`] stays in its thread: it is not `Send`. Several threads may each
//!   have connections. libpq and OpenSSL 1.1 and later initialise themselves under locks
//!   of their own.
//! - Nobody sets environment variables while threads run: libpq reads PGHOST and others.
//! - The process ends by `_exit` if a thread may still be in libpq: exit handlers of
//!   OpenSSL free what the thread uses.
//!
//! **Host names.** libpq looks up a name by getaddrinfo(3), for which neither time-out
//! nor interrupt counts: `resolv.conf` decides how long it takes. `hostaddr` avoids it.

mod conninfo;
#[cfg(test)]
mod tests;
pub mod wait;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use pq_sys::PostgresPollingStatusType as Polling;
use pq_sys::{ConnStatusType, ExecStatusType, PGconn, PGresult};

pub use conninfo::Conninfo;
use conninfo::OptionList;
use snowflake_core::id::Millis;
use snowflake_core::label::duration::rounded;
use wait::{Ready, SocketEvent, WaitEnded, Waiter};

/// The longest result, and the longest text of libpq's. Copies are in memory that is not
/// PostgreSQL's, whose lack would end the server.
const ANSWER_MAX: usize = 16 << 20;

/// Why there is no connection, or no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LibpqError {
    /// The text is neither a conninfo nor a URL.
    Conninfo,
    /// Why it could not connect, in libpq's words: for each host that was tried.
    Connect(String),
    /// No answer to the statement came in time.
    TimedOut(Duration),
    /// The other server refused the statement. The connection can be used further.
    Statement(SqlError),
    /// The connection is lost.
    Lost(String),
    /// The [`Waiter`] ended the wait.
    Ended,
}

/// The error of a statement, as the other server sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// SQLSTATE: five characters.
    pub sqlstate: String,
    pub message: String,
    /// Empty if there is none, as the hint.
    pub detail: String,
    pub hint: String,
}

impl fmt::Display for LibpqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conninfo => f.write_str("neither a libpq conninfo nor a URL"),
            Self::Connect(message) | Self::Lost(message) => f.write_str(message),
            Self::TimedOut(time) => write!(f, "no answer within {}", shown(*time)),
            Self::Statement(refusal) => f.write_str(&refusal.message),
            Self::Ended => f.write_str("the wait was ended"),
        }
    }
}

impl std::error::Error for LibpqError {}

impl From<WaitEnded> for LibpqError {
    fn from(_: WaitEnded) -> Self {
        Self::Ended
    }
}

/// What a statement returned. Commands without a result have no columns and no rows.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct ResultRows {
    pub columns: Vec<String>,
    /// Each with as many values as there are columns; `None` is NULL.
    pub rows: Rows,
}

type Rows = Vec<Vec<Option<String>>>;

impl ResultRows {
    /// The value in the first column of the first row, unless it is NULL.
    pub fn first_value(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }
}

/// Waits until a deadline, and after it once only: a server that sends without end is always
/// ready.
struct Patience<'a> {
    deadline: Instant,
    is_late: bool,
    waiter: &'a mut dyn Waiter,
}

impl<'a> Patience<'a> {
    fn new(deadline: Instant, waiter: &'a mut dyn Waiter) -> Self {
        Self {
            deadline,
            is_late: false,
            waiter,
        }
    }

    fn wait(&mut self, socket: c_int, wanted: SocketEvent) -> Result<Ready, WaitEnded> {
        if self.is_late {
            return Ok(Ready::No);
        }
        self.is_late = Instant::now() >= self.deadline;
        self.waiter.wait(socket, wanted, self.deadline)
    }
}

/// A connection, which is closed when this value is dropped.
pub struct Connection {
    raw: NonNull<PGconn>,
    /// No statement is under way, and none was left.
    is_idle: bool,
    /// A warning has come with the latest statement. A box, of which libpq has the address:
    /// so it is kept as a pointer, which may move.
    has_warned: NonNull<Cell<bool>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: nobody uses the connection any more, nor, after that, the box.
        unsafe {
            pq_sys::PQfinish(self.raw.as_ptr());
            drop(Box::from_raw(self.has_warned.as_ptr()));
        }
    }
}

impl Connection {
    /// Connects to the first host that accepts it.
    pub fn open(
        server: &Conninfo,
        timeout: Duration,
        waiter: &mut dyn Waiter,
    ) -> Result<Self, LibpqError> {
        let until = Instant::now() + timeout;
        let hosts = hosts(server)?;
        let mut failed = Vec::new();
        for (host, left) in hosts.iter().zip((1..=hosts.len()).rev()) {
            match Self::open_host(host, (until, left), waiter) {
                Err(LibpqError::Connect(why)) => failed.push(why),
                outcome => return outcome,
            }
        }
        Err(LibpqError::Connect(failed.join("; ")))
    }

    /// Connects to one of the [`hosts`] of a server. It gets an equal share of the time that is
    /// left for so many hosts: one that does not answer leaves time for the next.
    pub fn open_host(
        host: &Conninfo,
        (until, left): (Instant, usize),
        waiter: &mut dyn Waiter,
    ) -> Result<Self, LibpqError> {
        let mut connection = Self::start(host)?;
        if connection.is_bad() {
            return Err(LibpqError::Connect(connection.message()));
        }
        let left = u32::try_from(left).unwrap_or(u32::MAX).max(1);
        let share = until.saturating_duration_since(Instant::now()) / left;
        match connection.poll(Instant::now() + share, waiter)? {
            Ready::Yes => Ok(connection),
            Ready::No => Err(LibpqError::Connect(format!(
                "connection to {} failed: no answer within {}",
                connection.place(),
                shown(share)
            ))),
        }
    }

    /// Begins to connect.
    fn start(server: &Conninfo) -> Result<Self, LibpqError> {
        let options = server.all_options();
        let pointers = |texts: &mut dyn Iterator<Item = &CString>| -> Vec<*const c_char> {
            let pointers = texts.map(|text| text.as_ptr());
            pointers.chain([ptr::null()]).collect()
        };
        let keywords = pointers(&mut options.iter().map(|(keyword, _)| keyword));
        let values = pointers(&mut options.iter().map(|(_, value)| value));
        // SAFETY: both arrays end in NULL and have NUL-terminated texts, which libpq
        // copies.
        let raw = unsafe { pq_sys::PQconnectStartParams(keywords.as_ptr(), values.as_ptr(), 0) };
        let Some(raw) = NonNull::new(raw) else {
            return Err(LibpqError::Connect("out of memory".to_string()));
        };
        let connection = Self {
            raw,
            is_idle: true,
            has_warned: NonNull::from(Box::leak(Box::default())),
        };
        // SAFETY: a connection, a function that lives as long as the process, and a place
        // that lives as long as the connection.
        unsafe {
            let has_warned = connection.has_warned.as_ptr();
            pq_sys::PQsetNoticeReceiver(raw.as_ptr(), Some(notice), has_warned.cast());
        }
        Ok(connection)
    }

    /// Goes on until the server is reached, or until the deadline.
    fn poll(&mut self, deadline: Instant, waiter: &mut dyn Waiter) -> Result<Ready, LibpqError> {
        let mut wanted = SocketEvent::Write;
        let mut wait = Patience::new(deadline, waiter);
        loop {
            if let Ready::No = wait.wait(self.socket()?, wanted)? {
                return Ok(Ready::No);
            }
            // SAFETY: a connection that is being made.
            wanted = match unsafe { pq_sys::PQconnectPoll(self.raw.as_ptr()) } {
                Polling::PGRES_POLLING_OK => break,
                Polling::PGRES_POLLING_FAILED => return Err(LibpqError::Connect(self.message())),
                Polling::PGRES_POLLING_WRITING => SocketEvent::Write,
                Polling::PGRES_POLLING_READING | Polling::PGRES_POLLING_ACTIVE => SocketEvent::Read,
            };
        }
        // SAFETY: a connection that has been made.
        if unsafe { pq_sys::PQsetnonblocking(self.raw.as_ptr(), 1) } != 0 {
            return Err(LibpqError::Connect(self.message()));
        }
        Ok(Ready::Yes)
    }

    /// Runs one statement, with `$1` and so on as text. After any error but
    /// [`LibpqError::Statement`] the connection cannot be used further. A time-out does not
    /// end the statement on the other server: that is what its `statement_timeout` is
    /// for.
    pub fn query(
        &mut self,
        sql: &str,
        parameters: &[Option<&str>],
        timeout: Duration,
        waiter: &mut dyn Waiter,
    ) -> Result<ResultRows, LibpqError> {
        if !self.is_usable() {
            return Err(LibpqError::Lost("the connection was given up".to_string()));
        }
        let deadline = Instant::now() + timeout;
        self.send(sql, parameters)?;
        // An interrupt may end the function at each wait.
        self.is_idle = false;
        self.warned().set(false);
        let result = match self.flush(deadline, waiter)? {
            Ready::Yes => self.receive(deadline, waiter)?,
            Ready::No => None,
        };
        let Some((result, rows)) = result else {
            return Err(LibpqError::TimedOut(timeout));
        };
        let rows = result.read(self, rows);
        self.is_idle = !matches!(rows, Err(LibpqError::Lost(_)));
        rows
    }

    /// Whether the other server has sent a warning with the latest statement.
    pub fn has_warned(&self) -> bool {
        self.warned().get()
    }

    fn warned(&self) -> &Cell<bool> {
        // SAFETY: the box lives as long as this value, and only this thread looks at it.
        unsafe { self.has_warned.as_ref() }
    }

    /// Whether another statement can be sent.
    pub fn is_usable(&self) -> bool {
        self.is_idle && !self.is_bad()
    }

    /// Hands the statement to libpq.
    fn send(&self, sql: &str, parameters: &[Option<&str>]) -> Result<(), LibpqError> {
        let sql = terminated(sql)?;
        let texts = parameters
            .iter()
            .map(|text| text.map(terminated).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let values: Vec<*const c_char> = texts
            .iter()
            .map(|text| text.as_ref().map_or(ptr::null(), |text| text.as_ptr()))
            .collect();
        // SAFETY: `values` has as many texts as said, NUL-terminated or NULL, which
        // libpq copies. NULL for the types lets the server choose them, and for the
        // lengths and formats it means text.
        let sent = unsafe {
            pq_sys::PQsendQueryParams(
                self.raw.as_ptr(),
                sql.as_ptr(),
                c_int::try_from(values.len()).unwrap_or(c_int::MAX),
                ptr::null(),
                values.as_ptr(),
                ptr::null(),
                ptr::null(),
                0,
            )
        };
        // Row by row, so that what is too long is known before all of it is in memory. A single
        // row is read as a whole: only the deadline, and libpq's 2 GB, limit that.
        // SAFETY: a connection that has just sent a statement.
        if sent == 1 && unsafe { pq_sys::PQsetSingleRowMode(self.raw.as_ptr()) } == 1 {
            return Ok(());
        }
        Err(self.lost())
    }

    /// Sends what libpq still holds.
    fn flush(&self, deadline: Instant, waiter: &mut dyn Waiter) -> Result<Ready, LibpqError> {
        let mut wait = Patience::new(deadline, waiter);
        loop {
            // SAFETY: a connection that has been made.
            match unsafe { pq_sys::PQflush(self.raw.as_ptr()) } {
                0 => return Ok(Ready::Yes),
                1 => {
                    // The server may wait for us to read before it reads.
                    if let Ready::No = wait.wait(self.socket()?, SocketEvent::Either)? {
                        return Ok(Ready::No);
                    }
                    self.consume()?;
                }
                _ => return Err(self.lost()),
            }
        }
    }

    /// The last result of the statement, and the rows before it; `None` if it does not come
    /// in time.
    fn receive(
        &self,
        deadline: Instant,
        waiter: &mut dyn Waiter,
    ) -> Result<Option<(QueryAnswer, Rows)>, LibpqError> {
        let mut wait = Patience::new(deadline, waiter);
        let (mut last, mut rows, mut bytes) = (None, Rows::new(), 0);
        loop {
            // SAFETY: a connection that has been made, as below.
            while unsafe { pq_sys::PQisBusy(self.raw.as_ptr()) } == 1 {
                if let Ready::No = wait.wait(self.socket()?, SocketEvent::Read)? {
                    return Ok(None);
                }
                self.consume()?;
            }
            // SAFETY: PQgetResult() does not wait, since the connection is not busy.
            let result = unsafe { pq_sys::PQgetResult(self.raw.as_ptr()) };
            let Some(result) = NonNull::new(result).map(QueryAnswer) else {
                return last.map_or_else(|| Err(self.lost()), |last| Ok(Some((last, rows))));
            };
            if result.status() == ExecStatusType::PGRES_SINGLE_TUPLE {
                bytes += result.bytes();
                if bytes > ANSWER_MAX {
                    let most = ANSWER_MAX >> 20;
                    return Err(LibpqError::Lost(format!(
                        "the answer has more than {most} MB"
                    )));
                }
                rows.extend(result.rows());
                continue;
            }
            // COPY would give this result again and again.
            if result.is_copy() {
                return Ok(Some((result, rows)));
            }
            last = Some(result);
        }
    }

    fn consume(&self) -> Result<(), LibpqError> {
        // SAFETY: a connection that has been made.
        if unsafe { pq_sys::PQconsumeInput(self.raw.as_ptr()) } == 1 {
            return Ok(());
        }
        Err(self.lost())
    }

    fn is_bad(&self) -> bool {
        // SAFETY: a connection.
        unsafe { pq_sys::PQstatus(self.raw.as_ptr()) == ConnStatusType::CONNECTION_BAD }
    }

    /// The socket, which may be another one after each step of connecting.
    fn socket(&self) -> Result<c_int, LibpqError> {
        // SAFETY: a connection.
        match unsafe { pq_sys::PQsocket(self.raw.as_ptr()) } {
            ..0 => Err(self.lost()),
            socket => Ok(socket),
        }
    }

    /// libpq's last message.
    fn message(&self) -> String {
        // SAFETY: libpq keeps the text until its next call.
        in_a_line(&unsafe { text(pq_sys::PQerrorMessage(self.raw.as_ptr())) })
    }

    fn lost(&self) -> LibpqError {
        LibpqError::Lost(self.message())
    }

    /// The host that is tried, or in use.
    fn host(&self) -> String {
        // SAFETY: libpq keeps the text with the connection.
        unsafe { text(pq_sys::PQhost(self.raw.as_ptr())) }
    }

    fn port(&self) -> String {
        // SAFETY: libpq keeps the text with the connection.
        unsafe { text(pq_sys::PQport(self.raw.as_ptr())) }
    }

    /// The host in use, as libpq's messages name it.
    pub fn place(&self) -> String {
        let (host, port) = (self.host(), self.port());
        if host.starts_with(['/', '@']) {
            return format!("server on socket \"{host}/.s.PGSQL.{port}\"");
        }
        format!("server at \"{host}\", port {port}")
    }
}

/// The hosts of a server, in their order, each as a server of its own; also those that a service
/// file or the environment names.
///
/// # Errors
/// What libpq finds wrong with the options.
pub fn hosts(server: &Conninfo) -> Result<Vec<Conninfo>, LibpqError> {
    // libpq connects to nobody, since it refuses this value, the last of what it checks that
    // counts here.
    let refused = "target_session_attrs";
    let asked = Connection::start(&server.clone().with([(refused, "none")])?)?;
    let message = asked.message();
    if !message.contains(refused) {
        return Err(LibpqError::Connect(message));
    }
    // SAFETY: a connection; the list is freed by its owner.
    let options = OptionList(unsafe { pq_sys::PQconninfo(asked.raw.as_ptr()) });
    Ok(server.of_each_host(&options))
}

/// A duration for people, in tenths of a second: what is left of a time-out is a little less.
fn shown(time: Duration) -> String {
    let tenths = i64::try_from((time.as_millis() + 50) / 100).unwrap_or(i64::MAX);
    rounded(Millis::new(100).times(tenths.max(1)))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({}, {})", self.host(), self.port())
    }
}

/// A PGresult, which is freed when this value is dropped.
struct QueryAnswer(NonNull<PGresult>);

impl Drop for QueryAnswer {
    fn drop(&mut self) {
        // SAFETY: nobody uses the result any more.
        unsafe { pq_sys::PQclear(self.0.as_ptr()) };
    }
}

impl QueryAnswer {
    fn status(&self) -> ExecStatusType {
        // SAFETY: a result.
        unsafe { pq_sys::PQresultStatus(self.0.as_ptr()) }
    }

    fn is_copy(&self) -> bool {
        matches!(
            self.status(),
            ExecStatusType::PGRES_COPY_IN
                | ExecStatusType::PGRES_COPY_OUT
                | ExecStatusType::PGRES_COPY_BOTH
        )
    }

    /// What the statement has returned, with the rows that came before this last result.
    fn read(&self, connection: &Connection, rows: Rows) -> Result<ResultRows, LibpqError> {
        match self.status() {
            ExecStatusType::PGRES_TUPLES_OK => Ok(ResultRows {
                columns: self.columns(),
                rows,
            }),
            ExecStatusType::PGRES_COMMAND_OK | ExecStatusType::PGRES_EMPTY_QUERY => {
                Ok(ResultRows::default())
            }
            _ if self.is_copy() => Err(LibpqError::Lost("COPY has no place here".to_string())),
            _ if connection.is_bad() => {
                // SAFETY: libpq keeps the text with the result.
                let message = unsafe { text(pq_sys::PQresultErrorMessage(self.0.as_ptr())) };
                Err(LibpqError::Lost(in_a_line(&message)))
            }
            _ => Err(LibpqError::Statement(SqlError {
                sqlstate: self.field(pq_sys::PG_DIAG_SQLSTATE),
                message: self.field(pq_sys::PG_DIAG_MESSAGE_PRIMARY),
                detail: self.field(pq_sys::PG_DIAG_MESSAGE_DETAIL),
                hint: self.field(pq_sys::PG_DIAG_MESSAGE_HINT),
            })),
        }
    }

    /// A field of an error; empty if the error has none.
    fn field(&self, code: u8) -> String {
        // SAFETY: libpq keeps the text with the result.
        unsafe {
            text(pq_sys::PQresultErrorField(
                self.0.as_ptr(),
                c_int::from(code),
            ))
        }
    }

    /// How much memory the rows take, about. Empty values and rows take some, too.
    fn bytes(&self) -> usize {
        let raw = self.0.as_ptr();
        let (of_row, of_value) = (size_of::<Vec<()>>(), size_of::<Option<String>>());
        // SAFETY: rows and columns are those that the result has.
        unsafe {
            let columns = 0..pq_sys::PQnfields(raw);
            let length = |row, column| pq_sys::PQgetlength(raw, row, column);
            let value = |length| of_value + usize::try_from(length).unwrap_or(0);
            let values = |row| {
                columns
                    .clone()
                    .map(move |column| value(length(row, column)))
            };
            let rows = 0..pq_sys::PQntuples(raw);
            rows.map(|row| of_row + values(row).sum::<usize>()).sum()
        }
    }

    fn columns(&self) -> Vec<String> {
        let raw = self.0.as_ptr();
        // SAFETY: columns are those that the result has; libpq keeps their names with it.
        unsafe {
            (0..pq_sys::PQnfields(raw))
                .map(|column| text(pq_sys::PQfname(raw, column)))
                .collect()
        }
    }

    fn rows(&self) -> Rows {
        let raw = self.0.as_ptr();
        // SAFETY: rows and columns are those that the result has; libpq keeps the texts
        // with the result.
        unsafe {
            let columns = 0..pq_sys::PQnfields(raw);
            let value = |row, column| {
                (pq_sys::PQgetisnull(raw, row, column) == 0)
                    .then(|| text(pq_sys::PQgetvalue(raw, row, column)))
            };
            let row = |row| columns.clone().map(|column| value(row, column)).collect();
            (0..pq_sys::PQntuples(raw)).map(row).collect()
        }
    }
}

/// Drops a notice of the other server, which libpq would write to the server log, and
/// notes in a `Cell<bool>` that there was a warning.
unsafe extern "C" fn notice(has_warned: *mut c_void, notice: *const PGresult) {
    // SAFETY: libpq calls this for a connection that lives, with a result; the text lives
    // as long.
    unsafe {
        let severity = text(pq_sys::PQresultErrorField(notice, c_int::from(b'V')));
        if severity == "WARNING" {
            (*has_warned.cast::<Cell<bool>>()).set(true);
        }
    }
}

/// A text of libpq's; empty for NULL. Bytes that are not UTF-8 are replaced, and what is
/// longer than an answer may be is cut.
///
/// # Safety
/// NULL, or a NUL-terminated text.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: as the caller guarantees.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    let bytes = bytes.get(..ANSWER_MAX).unwrap_or(bytes);
    String::from_utf8_lossy(bytes).into_owned()
}

/// Text for a statement.
fn terminated(text: &str) -> Result<CString, LibpqError> {
    CString::new(text).map_err(|_| {
        LibpqError::Statement(SqlError {
            sqlstate: "22021".to_string(),
            message: "text has a character with the code zero".to_string(),
            detail: String::new(),
            hint: String::new(),
        })
    })
}

/// libpq's messages have several lines, each with a line feed.
fn in_a_line(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}
