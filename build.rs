//! Passes on where libpq is to be looked for when the library is loaded, which Cargo does not
//! do for a crate: see crates/registry-client/build.rs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(argument) = std::env::var_os("DEP_SNOWFLAKE_REGISTRY_CLIENT_LINK_ARG") {
        println!("cargo:rustc-link-arg={}", argument.display());
    }
}
