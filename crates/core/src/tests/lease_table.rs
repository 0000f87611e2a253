//! The rows of a registry, as its disk has them, and its host.

use std::collections::BTreeMap;

use crate::id::WorkerId;
use crate::lease::registry::{self, Rows};
use crate::lease::state::{RegistryInput, State};
use crate::lease::{Pool, Reply, Request, Row};

/// The rows of a pool, as a registry's disk has them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    pub pool: Pool,
    pub rows: BTreeMap<WorkerId, Row>,
}

impl Table {
    pub const fn new(pool: Pool) -> Self {
        Self {
            pool,
            rows: BTreeMap::new(),
        }
    }

    /// All rows, or the one of this worker ID.
    fn read(&self, only: Option<WorkerId>) -> Rows {
        let rows = self.rows.iter();
        let rows = rows.filter(|(worker, _)| only.is_none_or(|only| only == **worker));
        Rows {
            rows: rows.map(|(worker, row)| (*worker, row.clone())).collect(),
            elsewhere: Vec::new(),
            is_all: only.is_none(),
        }
    }
}

/// Answers a request, and stores what it changes. Also returns whether all rows were read.
pub fn handle(
    state: &mut State,
    table: &mut Table,
    request: &Request,
    input: &RegistryInput,
) -> (Reply, bool) {
    let answer = |only| {
        let mut state = state.clone();
        let rows = table.read(only);
        let answer = registry::handle(&mut state, &table.pool, rows, request, input);
        answer.map(|(reply, changes)| (reply, changes, state))
    };
    let only = registry::only_row(&request.ask);
    let alone = only.and_then(|only| answer(Some(only)));
    let is_all = alone.is_none();
    let all = answer(None).unwrap();
    // Others may be in the registry at the same time. So the state stays, and what they have
    // changes nothing, unless all rows show more than a renewal may change.
    if let Some((reply, changes, left)) = &alone {
        assert!(!changes.state && left == state, "of {request:?}");
        assert!(changes.rows.keys().all(|worker| Some(*worker) == only));
        if !all.1.state {
            assert_eq!((reply, changes), (&all.0, &all.1), "of {request:?}");
        }
    }
    let (reply, changes, left) = alone.unwrap_or(all);
    assert_eq!(changes.state, left != *state);
    *state = left;
    table.rows.extend(changes.rows);
    (reply, is_all)
}

/// Revokes a worker ID that has a row, and stores that.
pub fn revoke(state: &mut State, table: &mut Table, worker: WorkerId, input: &RegistryInput) {
    if let Some(row) = table.rows.get_mut(&worker) {
        let _ = registry::revoke(state, &table.pool, row, input);
    }
}
