//! Cargo tells the linker where a crate of the extension has found a library, but not where the
//! library is to be looked for when it is loaded: see crates/registry-client/build.rs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(argument) = std::env::var_os("DEP_SNOWFLAKE_REGISTRY_CLIENT_LINK_ARG") {
        println!("cargo:rustc-link-arg={}", argument.display());
    }
}
