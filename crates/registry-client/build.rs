//! Links the libpq that belongs to the server for which the extension is built.
//!
//! A process has one libpq at most, the first that was loaded. So ours must be the one
//! that the server's own libraries ask for (libpqwalreceiver, postgres_fdw): an older one
//! would lack functions that they call.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PGRX_PG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=PQ_LIB_DIR");
    // Packages name the folder of the distribution's libpq, which all its servers use.
    // pq-sys hands it to the linker.
    if env::var_os("PQ_LIB_DIR").is_some() {
        return;
    }
    let Some(folder) = pg_config("--libdir") else {
        println!("cargo:warning=pg_config does not run: the linker looks for libpq by itself");
        return;
    };
    println!("cargo:rustc-link-search=native={folder}");
    // PostgreSQL's Makefiles decide so for its own libraries.
    if pg_config("--configure").is_some_and(|options| !options.contains("--disable-rpath")) {
        let argument = format!("-Wl,-rpath,{folder},--enable-new-dtags");
        // For the tests of this crate, and for the build script of the extension.
        println!("cargo:rustc-link-arg={argument}");
        println!("cargo:link-arg={argument}");
    }
}

/// What `pg_config` of the server answers.
fn pg_config(option: &str) -> Option<String> {
    let program = env::var_os("PGRX_PG_CONFIG_PATH").unwrap_or_else(|| "pg_config".into());
    let output = Command::new(program).arg(option).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_string())
}
