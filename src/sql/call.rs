//! SQL functions by PostgreSQL's own calling convention: `#[pg_extern]` cannot express
//! what these functions take or return, or would need one function for each number of
//! arguments.

use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::rc::Rc;

use pgrx::callconv::{CallCx, RetAbi};
use pgrx::{Array, FromDatum, IntoDatum, PgMemoryContexts, pg_sys};
use serde_json::{Map, Value};

use crate::postgres::encoding::{bytes_from_server, from_server};
use crate::postgres::size_limit::{self, Limit};
use crate::postgres::{compat, error_report, time};
use crate::session;
use crate::session::generator::SessionGenerator;
use crate::session::label::{self, ParsedLabel};
use crate::sql::error::{self, Error};
use snowflake_core::id::layout::{Fields, Layout};
use snowflake_core::id::{SnowflakeId, UnixMillis};
use snowflake_core::label::Label;

/// Defines the C function `$name`, which answers a [`Call`] by `$body`.
macro_rules! c_function {
    ($name:ident, $body:expr) => {
        // Declares that the function has the V1 calling convention.
        const _: () = {
            #[unsafe(export_name = concat!("pg_finfo_", stringify!($name)))]
            extern "C" fn convention() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
                &::pgrx::pg_sys::Pg_finfo_record { api_version: 1 }
            }
        };

        #[unsafe(no_mangle)]
        pub(in $crate) unsafe extern "C-unwind" fn $name(
            fcinfo: ::pgrx::pg_sys::FunctionCallInfo,
        ) -> ::pgrx::pg_sys::Datum {
            // SAFETY: called by PostgreSQL only, with nothing to drop; the SQL functions
            // that name this one declare what its body takes.
            let call = unsafe { $crate::sql::call::Call::new(fcinfo) };
            call.answer($body)
        }
    };
}

/// Defines two C functions that answer by `$body` and find the layout in different
/// ways: `$name` by the generator behind `$own` other arguments (without one, the
/// default generator), `$name_as` by the text of a label.
macro_rules! by_layout {
    ($name:ident, $name_as:ident, $own:literal, $body:path) => {
        $crate::sql::call::c_function!($name, |call| $body(call, &call.whose($own)?));
        $crate::sql::call::c_function!($name_as, |call| $body(call, &call.whose_by_text()?));
    };
}

/// Values of the columns of a row.
macro_rules! columns {
    ($($value:expr),* $(,)?) => { [$(::pgrx::IntoDatum::into_datum($value)),*] };
}

pub(super) use {by_layout, c_function, columns};

/// A call by PostgreSQL.
pub struct Call(pg_sys::FunctionCallInfo);

impl Call {
    /// # Safety
    /// For as long as this value lives, PostgreSQL calls a function whose arguments and
    /// result are declared as the types used here. The function is STRICT, unless it
    /// takes all arguments by [`Self::get`]. The caller has nothing that must be
    /// dropped.
    pub unsafe fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        Self(fcinfo)
    }

    /// Answers the call by `body`, or ends the statement with the error of `body`.
    #[inline]
    pub fn answer<R: IntoDatum>(
        &self,
        body: impl FnOnce(&Self) -> Result<R, Error>,
    ) -> pg_sys::Datum {
        // SAFETY: the call is PostgreSQL's, as `new` asks for.
        unsafe {
            error_report::guard(|| {
                let datum = body(self)?.into_datum();
                Ok(datum.unwrap_or_else(|| pgrx::pg_return_null(self.0)))
            })
        }
    }
    /// The number of arguments. It tells apart the SQL functions that share a C
    /// function.
    #[inline]
    pub fn count(&self) -> usize {
        // SAFETY: the call is PostgreSQL's, as `new` asks for.
        usize::from(unsafe { (*self.0).nargs }.unsigned_abs())
    }

    /// The function that is called.
    pub fn function(&self) -> Result<pg_sys::Oid, Error> {
        // SAFETY: the call is PostgreSQL's, as `new` asks for; `flinfo` may be null.
        let function = unsafe { (*self.0).flinfo.as_ref() };
        let function = function.map(|function| function.fn_oid);
        function.ok_or_else(error::extension_is_gone)
    }

    /// Whether a procedure may end the transaction.
    pub fn may_commit(&self) -> bool {
        // SAFETY: the call is PostgreSQL's, as `new` asks for; what it passes besides, if
        // anything, is a node. A subtransaction cannot end the transaction that it is in.
        unsafe {
            let context = (*self.0).context.as_ref();
            let context = context.filter(|it| it.type_ == pg_sys::NodeTag::T_CallContext);
            context.is_some_and(|it| {
                let it = std::ptr::from_ref(it).cast::<pg_sys::CallContext>();
                !(*it).atomic && !pg_sys::IsSubTransaction()
            })
        }
    }

    /// What a function is called with as a trigger; `None` if it is not called as one.
    pub fn trigger(&self) -> Option<&pg_sys::TriggerData> {
        // SAFETY: the call is PostgreSQL's, as `new` asks for; what it passes besides, if
        // anything, is a node.
        unsafe {
            let context = (*self.0).context.as_ref()?;
            let is_trigger = context.type_ == pg_sys::NodeTag::T_TriggerData;
            is_trigger.then(|| &*std::ptr::from_ref(context).cast::<pg_sys::TriggerData>())
        }
    }

    /// An argument as PostgreSQL passes it, for one of fixed length.
    #[inline]
    pub fn datum(&self, index: usize) -> pg_sys::Datum {
        // SAFETY: the call is PostgreSQL's, as `new` asks for.
        unsafe { pgrx::pg_getarg_datum_raw(self.0, index) }
    }

    pub fn is_null(&self, index: usize) -> bool {
        // SAFETY: the call is PostgreSQL's, as `new` asks for; callers count its arguments.
        unsafe { pgrx::pg_getarg_datum(self.0, index) }.is_none()
    }

    /// An argument of fixed length that is not NULL.
    #[inline]
    pub fn get<'a, T: FromDatum + 'a>(&'a self, index: usize) -> Option<T> {
        // SAFETY: the argument is of this type, as `new` asks for; the argument, or the
        // copy that is read, exists until the call ends.
        unsafe { pgrx::pg_getarg(self.0, index) }
    }

    /// An argument that is a bigint or a timestamptz.
    pub fn number(&self, index: usize) -> i64 {
        self.get(index).unwrap_or_default()
    }

    /// An argument that is a finite timestamptz, as the millisecond that holds it.
    pub fn instant(&self, index: usize) -> Result<UnixMillis, Error> {
        match self.number(index) {
            time::BEGINNING | time::END => Err(error::infinite_instant()),
            timestamptz => Ok(time::unix_millis(timestamptz)),
        }
    }

    /// An argument of variable length, which is not NULL, as PostgreSQL passes it: measured,
    /// and not yet decompressed. Ends the statement if it is too long.
    pub fn measured(&self, index: usize, limit: &Limit) -> pg_sys::Datum {
        let datum = self.datum(index);
        // SAFETY: as `new` asks for.
        unsafe { limit.check_datum(datum) }.unwrap_or_else(|error| error.raise());
        datum
    }

    /// The bytes of such an argument: a text or a bytea.
    pub fn bytes(&self, index: usize, limit: &Limit) -> &[u8] {
        let datum = self.measured(index, limit);
        // SAFETY: as `new` asks for; the argument, or the copy in PostgreSQL's memory that is
        // read, exists until the call ends.
        unsafe { FromDatum::from_datum(datum, false) }.unwrap_or_default()
    }

    /// An argument that is a jsonb, as text: pgrx's `JsonB` gives an internal error for
    /// numbers and depths that only PostgreSQL has.
    pub fn json(&self, index: usize, limit: &Limit) -> Result<String, Error> {
        let datum = self.datum(index);
        // SAFETY: declared as jsonb, not NULL; its text, in PostgreSQL's memory, is
        // NUL-terminated.
        let text = unsafe {
            limit.check_jsonb(datum)?;
            let text = pg_sys::OidOutputFunctionCall(pg_sys::F_JSONB_OUT.into(), datum);
            CStr::from_ptr(text)
        };
        limit.check(text.count_bytes())?;
        Ok(from_server(text))
    }

    /// An argument that is a jsonb of values by the names of fields.
    pub fn object(&self, index: usize) -> Result<Map<String, Value>, Error> {
        let text = with_whole_numbers(&self.json(index, &size_limit::FIELDS)?);
        match serde_json::from_str(&text).map_err(|_| error::fields_not_read())? {
            Value::Object(fields) => Ok(fields),
            _ => Err(error::fields_not_object()),
        }
    }

    /// Such an argument, if all values are numbers.
    pub fn fields(&self, index: usize) -> Result<Vec<(String, i64)>, Error> {
        let fields = self.object(index)?.into_iter().map(|(name, value)| {
            let value = value.as_i64();
            let value = value.ok_or_else(|| error::field_not_number(&name))?;
            Ok((name, value))
        });
        fields.collect()
    }

    /// An argument that is a text. Ends the statement if it is too long.
    pub fn text(&self, index: usize, limit: &Limit) -> Cow<'_, str> {
        bytes_from_server(self.bytes(index, limit))
    }

    /// An argument that is a name, or an address.
    pub fn name(&self, index: usize) -> Cow<'_, str> {
        self.text(index, &size_limit::NAME)
    }

    /// An argument that is an array, which is not NULL; `name` is that of the argument. Ends
    /// the statement if it is too long. Refuses more than one dimension.
    pub fn list(&self, index: usize, name: &str, limit: &Limit) -> Result<pg_sys::Datum, Error> {
        let datum = self.measured(index, limit);
        // SAFETY: the argument is an array, and not NULL, as the caller guarantees by its
        // declaration; the copy that is read exists until the call ends.
        let (array, dimensions) = unsafe {
            let array = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            (array, (*array.cast::<pg_sys::ArrayType>()).ndim)
        };
        match dimensions {
            0 | 1 => Ok(array.into()),
            _ => Err(error::not_a_list(name, dimensions)),
        }
    }

    /// An argument that is an array of texts, each of which may be NULL.
    pub fn texts(
        &self,
        index: usize,
        name: &str,
        limit: &Limit,
    ) -> Result<Vec<Option<String>>, Error> {
        let list = self.list(index, name, limit)?;
        // SAFETY: the argument is a text[], as `new` asks for, and not NULL.
        let list: Option<Array<&[u8]>> = unsafe { FromDatum::from_datum(list, false) };
        let text = |bytes: Option<&[u8]>| Some(bytes_from_server(bytes?).into_owned());
        Ok(list.iter().flat_map(|list| list.iter().map(text)).collect())
    }

    /// What this function keeps between its calls in a statement, null at first; `None`
    /// for a call without FmgrInfo.
    #[inline]
    pub fn kept(&self) -> Option<&Cell<*mut c_void>> {
        // SAFETY: the call is PostgreSQL's, as `new` asks for; `flinfo` may be null.
        let function = unsafe { (*self.0).flinfo.as_mut() };
        function.map(|function| Cell::from_mut(&mut function.fn_extra))
    }

    /// The generator that is named behind `own` other arguments, if any.
    #[inline]
    pub fn generator(&self, own: usize) -> Option<pg_sys::Oid> {
        if self.count() == own {
            return None;
        }
        // SAFETY: there is one more argument, a regclass, as `new` asks for.
        let value = unsafe { (*(*self.0).args.as_ptr().add(own)).value.value() };
        // An OID datum is 32 bits in a wider word.
        #[allow(clippy::cast_possible_truncation)]
        Some(pg_sys::Oid::from(value as u32))
    }

    /// The entry of the generator named there, or of the default generator.
    pub fn entry(&self, own: usize) -> Result<&'static SessionGenerator, Error> {
        let named = self.generator(own);
        let relation = named.map_or_else(session::default_relation, Ok)?;
        session::of_named(relation)
    }

    /// Whose IDs the call is about: those of the generator that is named behind `own`
    /// other arguments, or of the default generator if none is.
    #[inline]
    pub fn whose(&self, own: usize) -> Result<Whose, Error> {
        let Some(relation) = self.generator(own) else {
            return Ok(Whose::Default);
        };
        let entry = session::of_named(relation)?;
        Ok(Whose::Generator(entry, entry.describe()?))
    }

    /// Whose IDs the call is about, by the text of a label, which is the last argument.
    pub fn whose_by_text(&self) -> Result<Whose, Error> {
        let text = self.text(self.count().saturating_sub(1), &size_limit::LABEL);
        Ok(Whose::Text(label::given(&text)?))
    }

    pub fn rows<const N: usize>(&self, rows: impl Iterator<Item = [Option<pg_sys::Datum>; N]>) {
        // SAFETY: a function that returns rows, as `new` asks for, is called with
        // `resultinfo`; the declared result has these columns.
        unsafe {
            compat::init_rows(self.0, 0);
            let result = (*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            let (store, row_type) = ((*result).setResult, (*result).setDesc);
            check_columns((*row_type).natts, N);
            for columns in rows {
                let (mut values, mut nulls) = split(columns);
                let (values, nulls) = (values.as_mut_ptr(), nulls.as_mut_ptr());
                pg_sys::tuplestore_putvalues(store, row_type, values, nulls);
            }
        }
    }

    /// Where a function that returns rows puts them.
    pub fn store(&self) -> *mut pg_sys::Tuplestorestate {
        // SAFETY: a function that returns rows, as `new` asks for, is called with
        // `resultinfo`.
        unsafe {
            compat::init_rows(self.0, 0);
            (*(*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>()).setResult
        }
    }

    /// Whether PostgreSQL takes all rows of a function in FROM at once, from a store.
    pub fn is_in_from(&self) -> bool {
        // SAFETY: a function that returns rows, as `new` asks for, is called with
        // `resultinfo`.
        let modes = unsafe { (*(*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>()).allowedModes };
        let preferred = pg_sys::SetFunctionReturnMode::SFRM_Materialize_Preferred;
        modes & preferred.cast_signed() != 0
    }

    /// Where a function in FROM puts its rows, each of which is one bigint.
    pub fn numbers_store(&self) -> NumbersStore {
        // SAFETY: as for `is_in_from`; in FROM there is a descriptor of the result.
        unsafe {
            compat::init_rows(self.0, pg_sys::MAT_SRF_USE_EXPECTED_DESC);
            let result = (*self.0).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            NumbersStore((*result).setResult, (*result).setDesc)
        }
    }

    /// Answers each call with one row of the declared result; `make` makes all rows, at
    /// the first call.
    pub fn set<S: RetAbi>(
        &self,
        make: impl FnOnce() -> Result<S, Error>,
    ) -> Result<pg_sys::Datum, Error> {
        // SAFETY: a function that returns rows, as `new` asks for. The rows made at the
        // first call live as long as PostgreSQL calls for more.
        unsafe {
            let next = match S::check_fcinfo_and_prepare(self.0) {
                CallCx::WrappedFn(context) => PgMemoryContexts::For(context)
                    .switch_to(|_| make())?
                    .to_ret(),
                CallCx::RestoreCx => S::ret_from_fcinfo_fcx(self.0),
            };
            Ok(S::box_ret_in_fcinfo(self.0, next))
        }
    }

    pub fn row<const N: usize>(&self, columns: [Option<pg_sys::Datum>; N]) -> pg_sys::Datum {
        let (mut values, mut nulls) = split(columns);
        let row_type = self.row_type();
        // SAFETY: the declared result has these columns, as `new` asks for.
        unsafe {
            check_columns((*row_type).natts, N);
            let tuple = pg_sys::heap_form_tuple(row_type, values.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }

    /// The descriptor of the declared result. The first call of a statement reads it
    /// from the catalog and keeps it for the others.
    fn row_type(&self) -> pg_sys::TupleDesc {
        // SAFETY: the call is PostgreSQL's, as `new` asks for, and a function that
        // returns rows is called with `flinfo`. Its `fn_extra` is ours and null at
        // first; what it points to lives in `fn_mcxt` as long as `flinfo`.
        unsafe {
            let function = (*self.0).flinfo;
            if (*function).fn_extra.is_null() {
                PgMemoryContexts::For((*function).fn_mcxt).switch_to(|_| {
                    let mut made = std::ptr::null_mut();
                    pg_sys::get_call_result_type(self.0, std::ptr::null_mut(), &raw mut made);
                    (*function).fn_extra = pg_sys::BlessTupleDesc(made).cast();
                });
            }
            (*function).fn_extra.cast()
        }
    }
}

/// See [`Call::numbers_store`]. It lives as long as the call.
pub struct NumbersStore(*mut pg_sys::Tuplestorestate, pg_sys::TupleDesc);

impl NumbersStore {
    /// Puts a row for each number. Nothing in `numbers` has to be dropped.
    pub fn put(&self, numbers: impl Iterator<Item = i64>) {
        // SAFETY: both were made for this call.
        unsafe { compat::put_numbers(self.0, self.1, numbers) };
    }
}

/// The text of a jsonb, with whole numbers such as `1.0` without their fraction: PostgreSQL
/// keeps it, and serde_json would read a float.
fn with_whole_numbers(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let (mut in_string, mut is_escaped) = (false, false);
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next == '.' && !in_string {
            let after = rest.as_str().trim_start_matches('0');
            if after.len() < rest.as_str().len() && !after.starts_with(|c: char| c.is_ascii_digit())
            {
                rest = after.chars();
                continue;
            }
        }
        in_string ^= next == '"' && !is_escaped;
        is_escaped = in_string && next == '\\' && !is_escaped;
        result.push(next);
    }
    result
}

/// Ends the statement unless the declared result has as many columns as this library gives:
/// PostgreSQL would read past them. A script of a later version may declare more.
fn check_columns(declared: i32, given: usize) {
    if usize::try_from(declared) != Ok(given) {
        error::other_columns(declared, given).raise();
    }
}

/// Values as PostgreSQL takes them, and which of them are NULL.
fn split<const N: usize>(columns: [Option<pg_sys::Datum>; N]) -> ([pg_sys::Datum; N], [bool; N]) {
    (
        columns.map(|column| column.unwrap_or(pg_sys::Datum::from(0))),
        columns.map(|column| column.is_none()),
    )
}

pub enum Whose {
    /// The default generator's, whose layout is a constant: reading its IDs needs
    /// neither a label nor the catalog.
    Default,
    Generator(&'static SessionGenerator, &'static ParsedLabel),
    /// IDs of the layout in the text of a label.
    Text(Rc<ParsedLabel>),
}

impl Whose {
    fn described(&self) -> &ParsedLabel {
        match self {
            Self::Default => label::of_default(),
            Self::Generator(_, described) => described,
            Self::Text(described) => described,
        }
    }

    pub fn label(&self) -> &Label {
        &self.described().label
    }

    /// Applies `f` to the layout of these IDs. `f` is called at two places so that the
    /// compiler can specialise one of them for the constant layout.
    #[inline]
    pub fn with_layout<R>(&self, f: impl Fn(&Layout) -> R) -> R {
        match self {
            Self::Default => f(&Layout::DEFAULT),
            _ => f(&self.described().generator.layout),
        }
    }

    /// Takes an ID apart, and applies `f` to the layout and the fields; calls `f` at
    /// two places, like [`Self::with_layout`].
    #[inline]
    pub fn read<R>(&self, id: i64, f: impl Fn(&Layout, Fields) -> R) -> Result<R, Error> {
        let id = SnowflakeId::new(id);
        Ok(match self {
            Self::Default => f(&Layout::DEFAULT, Layout::DEFAULT.decode(id)?),
            _ => {
                let described = self.described();
                let fields = described.label.decode(id)?.fields;
                f(&described.generator.layout, fields)
            }
        })
    }
}
