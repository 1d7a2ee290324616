//! Configurations with the one provider that is built in.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::{Cause, Operation, TlsError};

/// A client that believes servers whose certificates lead to one of `roots`, and shows none itself.
/// TLS 1.3 and 1.2; the provider is `ring`, so that no program has to install one.
///
/// # Errors
/// None that is known: rustls checks that the provider fits the versions.
pub fn client_config(roots: RootCertStore) -> Result<Arc<ClientConfig>, TlsError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// A server that shows `chain`, its own certificate first, and asks clients for none. TLS 1.3 and
/// 1.2; the provider is `ring`.
///
/// # Errors
/// When the key cannot be read, or is not that of the first certificate.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let config = config.with_no_client_auth().with_single_cert(chain, key).map_err(refused)?;
    Ok(Arc::new(config))
}

fn refused(error: rustls::Error) -> TlsError {
    TlsError {
        operation: Operation::Configure,
        endpoints: Box::default(),
        cause: Box::new(Cause::Tls(error)),
    }
}
