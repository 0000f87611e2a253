//! Passes on where libpq is to be looked for when the library is loaded, which Cargo does not
//! do for a crate (see crates/registry-client/build.rs), and gives the library for
//! `cargo pgrx test` the SQL.

use std::fmt::Write;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(argument) = env::var_os("DEP_SNOWFLAKE_REGISTRY_CLIENT_LINK_ARG") {
        println!("cargo:rustc-link-arg={}", argument.display());
    }
    if env::var_os("CARGO_FEATURE_PG_TEST").is_some() {
        write_sql()?;
    }
    Ok(())
}

/// Writes `sql.rs`, which puts the parts of the SQL into the library, in the order that
/// `sql/order` gives and `tools/env.sh` reads.
fn write_sql() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=sql/order");
    let folder = format!("{}/sql", env::var("CARGO_MANIFEST_DIR")?);
    let mut calls = String::new();
    let mut place = "bootstrap".to_string();
    for name in fs::read_to_string("sql/order")?.lines() {
        let file = format!("{folder}/{name}.sql");
        writeln!(
            calls,
            "pgrx::extension_sql_file!({file:?}, name = {name:?}, {place});"
        )?;
        place = format!("requires = [{name:?}]");
    }
    fs::write(format!("{}/sql.rs", env::var("OUT_DIR")?), calls)?;
    Ok(())
}
