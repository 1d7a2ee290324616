//! Gives the shared library the name that programs look for.

fn main() {
    // The number grows when a program built against an older lastbyte.h would no longer work.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblastbyte.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
