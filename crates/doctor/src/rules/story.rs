//! Small stories of events, for tests.
