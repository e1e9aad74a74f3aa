//! Errors about the result of a patch.

use serde_json::Value;

use super::{Patch, PatchKind, conversion_error, go_values, strict};
use crate::field_error::FieldError;
use crate::schema::{DecodeError, StrictIssue, TypeId};
use crate::status::{ApiError, Named};

/// An applied patch, to build errors about its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AppliedPatch<'a> {
    pub(crate) patch: &'a Patch<'a>,
    pub(crate) ty: TypeId,
    pub(crate) current: &'a Value,
}

impl AppliedPatch<'_> {
    /// Applies the patch again. Only errors need the patched value, and decoding has consumed the first one.
    fn patched(&self) -> Value {
        self.patch.apply(self.ty, self.current).unwrap_or_default()
    }

    /// Returns the error for a patched value that does not decode.
    pub(crate) fn decode_error(&self, error: &DecodeError) -> ApiError {
        match self.patch.kind {
            PatchKind::Strategic => self.invalid(&conversion_error(self.ty, &self.patched(), error)),
            PatchKind::Json | PatchKind::Merge => self.invalid(&error.to_string()),
        }
    }

    /// Returns all issues of strict field validation in upstream's order: those of the patch text, then those of the result.
    /// `decoded` has the issues found while decoding the result.
    pub(crate) fn strict_issues(&self, decoded: &[StrictIssue]) -> Vec<String> {
        let mut issues = strict::issues(self.patch.kind, self.patch.text);
        let mut result_issues: Vec<String> = decoded.iter().map(ToString::to_string).collect();
        if self.patch.kind == PatchKind::Strategic {
            result_issues.sort_unstable();
        }
        issues.append(&mut result_issues);
        issues
    }

    /// Returns the 422 for a result that fails strict field validation.
    pub(crate) fn strict_error(&self, issues: &[String]) -> ApiError {
        self.invalid(&format!("strict decoding error: {}", issues.join(", ")))
    }

    /// Returns the 422 for a result that is not a valid object of this kind.
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
