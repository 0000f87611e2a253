//! What PostgreSQL calls before, after or instead of its own commands.

pub mod commands; // registers the hooks, and calls the duties
pub mod provider; // checks a label before PostgreSQL stores it

mod adopt; // a default that names an unlabelled sequence
mod error; // commands that a generator refuses
mod key_catalog; // what the catalogs say of keys
mod new_keys; // snowflake_id.new_keys: keys of new tables get IDs
mod new_keys_error; // what it says of keys that stay
mod notice; // notices for who gave the command
mod restart; // commands that restart or rewrite a generator's sequence
#[cfg(feature = "pg19")]
mod subscription; // leaves generators out when sequences are replicated
mod unlogged; // SET UNLOGGED is refused
