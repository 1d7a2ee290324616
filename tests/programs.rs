//! Real programs through the gate, which know nothing of it: a web server and curl, PostgreSQL,
//! Redis, MariaDB, rsync over ssh, git, a WebSocket, gRPC. What arrives is what was sent, nothing
//! hangs, and a transfer that was cut does not look complete.
//!
//! These need those programs and take their time: `make test-real` installs them and runs this.

mod git;
mod mariadb;
mod place;
mod postgres;
mod python;
mod redis;
mod rsync;
mod web;
