//! Patches whose result is not acceptable, and what the client is told about them.

use serde_json::Value;

use super::{Patch, PatchKind, conversion_complaint, go_values, strict};
use crate::field_error::FieldError;
use crate::schema::{DecodeError, StrictIssue, TypeId};
use crate::status::{ApiError, Named};

/// A patch that was applied, for errors about its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) patch: &'a Patch<'a>,
    pub(crate) ty: TypeId,
    pub(crate) current: &'a Value,
}

impl Attempt<'_> {
    /// The patched value. Applied again: only errors ask for it, and the first one was decoded away.
    fn patched(&self) -> Value {
        self.patch.apply(self.ty, self.current).unwrap_or_default()
    }

    /// The patched value does not decode.
    pub(crate) fn undecodable(&self, error: &DecodeError) -> ApiError {
        match self.patch.kind {
            PatchKind::Strategic => self.invalid(&conversion_complaint(self.ty, &self.patched(), error)),
            PatchKind::Json | PatchKind::Merge => self.invalid(&error.to_string()),
        }
    }

    /// Everything strict validation has to say, in upstream's order: about the patch's text, then about the result
    /// (`decoded`: what decoding it found).
    pub(crate) fn strict_issues(&self, decoded: &[StrictIssue]) -> Vec<String> {
        let mut issues = strict::issues(self.patch.kind, self.patch.text);
        let mut found: Vec<String> = decoded.iter().map(ToString::to_string).collect();
        if self.patch.kind == PatchKind::Strategic {
            found.sort_unstable();
        }
        issues.append(&mut found);
        issues
    }

    /// The 422 for a result that strict validation does not let pass.
    pub(crate) fn not_strict(&self, issues: &[String]) -> ApiError {
        self.invalid(&format!("strict decoding error: {}", issues.join(", ")))
    }

    /// The 422 for a result that is no object of this kind.
    pub(crate) fn invalid(&self, why: &str) -> ApiError {
        let shown = match self.patch.kind {
            PatchKind::Strategic => match self.patch.merge_strategically(self.ty, self.current) {
                Ok((_, leftover)) => go_values::object(&leftover, go_values::Numbers::AsGiven),
                Err(_) => String::new(),
            },
            PatchKind::Json | PatchKind::Merge => self.patched().to_string(),
        };
        ApiError::invalid(Named { group: "", kind: "" }, "", &[FieldError::invalid("patch", shown, why)])
    }
}
