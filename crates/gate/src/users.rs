//! Authenticates the clients of a proxy.

use lastbyte_core::request::Credentials;
use subtle::{Choice, ConstantTimeEq};

use crate::config::Users;

impl Users {
    /// Whether clients are authenticated.
    pub(crate) fn are_asked(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether these are the name and the password of one user.
    ///
    /// The time it takes depends on the number of users and on what was sent; not on whether the name is a
    /// user's, nor on how much of a password is right.
    pub(crate) fn admits(&self, credentials: &Credentials) -> bool {
        let Credentials { name, password } = credentials;
        let (Some(name), Some(password)) = (padded(name), padded(password)) else { return false };
        let mut admitted = Choice::from(0);
        for user in &self.0 {
            let Some(own_name) = padded(user.name.as_bytes()) else { continue };
            let Some(own_password) = padded(user.password.as_bytes()) else { continue };
            admitted |= own_name.ct_eq(&name) & own_password.ct_eq(&password);
        }
        admitted.into()
    }
}

/// A length byte and the bytes, padded to the same size for all, so that lengths are not compared first.
/// `None` for more bytes than a user's name or password may have.
fn padded(bytes: &[u8]) -> Option<[u8; 256]> {
    let mut room = [0; 256];
    let (count, rest) = room.split_first_mut()?;
    *count = u8::try_from(bytes.len()).ok()?;
    rest.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::User;

    #[test]
    fn a_name_and_its_own_password_are_admitted() {
        let user = |name: &str, password: &str| User {
            name: name.to_owned(),
            password: password.to_owned(),
        };
        let long = "x".repeat(255);
        let users = Users(vec![user("a", "1"), user("b", "22"), user(&long, &long), user("c", "")]);
        let admits = |name: &str, password: &str| {
            let [name, password] = [name, password].map(|part| part.as_bytes().to_vec());
            users.admits(&Credentials { name, password })
        };
        assert!(admits("a", "1") && admits("b", "22") && admits(&long, &long) && admits("c", ""));
        for (name, password) in [
            ("a", "22"),
            ("b", "1"),
            ("b", "2"),
            ("b", "22\0"),
            ("b\0", "22"),
            ("", ""),
            ("d", "1"),
            (&"x".repeat(254), &long),
            (&"x".repeat(256), &long),
            (&long, &"x".repeat(100_000)),
        ] {
            assert!(!admits(name, password), "{name} {password}");
        }
        assert!(users.are_asked() && !Users::default().are_asked());
        let nobody = Credentials { name: Vec::new(), password: Vec::new() };
        assert!(!Users::default().admits(&nobody));
    }
}
