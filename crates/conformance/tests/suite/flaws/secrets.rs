//! Flaws in the use of Secrets.

use bowline_cloud::{ErrorKind, SecretData};

use crate::flaws::broken::Break::{OnSecret, Secrets};
use crate::flaws::broken::{Flaw, flaws, later};

flaws! {
    "names a Secret twice", [secrets_are_declared], Secrets(|secrets| secrets.extend(secrets.clone()));
    "accepts any Secret", [bad_secret_is_refused],
        OnSecret(later!(|it, secret, data| { it.deliver(secret, data).await.or(Ok(())) }));
    "shows the value of an invalid Secret", [bad_secret_is_refused],
        OnSecret(later!(|it, secret, data| {
            let text = data.and_then(|data| data.bytes("token")).map(String::from_utf8_lossy).unwrap_or_default();
            let shown = |_| bowline_cloud::Error::new(ErrorKind::InvalidConfig, "flaw", format!("{text} is no token"));
            it.deliver(secret, data).await.map_err(shown)
        }));
    "drops its token before it reads another", [bad_secret_is_refused],
        OnSecret(later!(|it, secret, data| {
            let none = SecretData::from_iter([("token", "none")]);
            it.deliver(secret, Some(&none)).await?;
            it.deliver(secret, data).await
        }));
    "keeps the first Secret", [rotated_secret_is_used],
        OnSecret(later!(|it, secret, data| {
            if it.memory().created.contains("a token") {
                return data.map_or(Ok(()), |data| data.text("token").map(drop));
            }
            it.deliver(secret, data).await?;
            it.memory().created.insert("a token".to_owned());
            Ok(())
        }));
}
