//! Links the libpq that belongs to the server for which the extension is built, and gives
//! the library for `cargo pgrx test` the SQL.
//!
//! A process has one libpq at most, the first that was loaded. So ours must be the one
//! that the server's own libraries ask for (libpqwalreceiver, postgres_fdw): an older one
//! would lack functions that they call.

use std::fmt::Write;
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PGRX_PG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PQ_LIB_DIR");
    if env::var_os("CARGO_FEATURE_PG_TEST").is_some() {
        write_sql()?;
    }
    // The core builds without PostgreSQL.
    let versions = 15..=18;
    if !versions
        .into_iter()
        .any(|version| env::var_os(format!("CARGO_FEATURE_PG{version}")).is_some())
    {
        return Ok(());
    }
    // Packages name the folder of the distribution's libpq, which all its servers use.
    // pq-sys hands it to the linker.
    if env::var_os("PQ_LIB_DIR").is_some() {
        return Ok(());
    }
    let Some(folder) = pg_config("--libdir") else {
        println!("cargo:warning=pg_config does not run: the linker looks for libpq by itself");
        return Ok(());
    };
    println!("cargo:rustc-link-search=native={folder}");
    // PostgreSQL's Makefiles decide so for its own libraries.
    if pg_config("--configure").is_some_and(|options| !options.contains("--disable-rpath")) {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder},--enable-new-dtags");
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

/// What `pg_config` of the server answers.
fn pg_config(option: &str) -> Option<String> {
    let program = env::var_os("PGRX_PG_CONFIG_PATH").unwrap_or_else(|| "pg_config".into());
    let output = Command::new(program).arg(option).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
