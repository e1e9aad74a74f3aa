//! `/debug/`: log verbosity and profiles.
//!
//! Unlike Go, Rust has no runtime profiler. The pprof endpoints exist for compatibility, and their responses name alternatives.

use std::sync::Arc;

use bowline_serving::answer::{self, Answer};
use bowline_serving::{ANY, IncomingRequest, READ_METHODS, Router};
use http::header::LOCATION;
use http::{Method, StatusCode};

/// Profiles of the Go managers.
const PROFILES: [&str; 9] =
    ["allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"];

const PPROF: &str = "/debug/pprof/";

/// Response in place of a profile.
const NO_PROFILES: &str = "this program has no runtime profiler; use perf or another system profiler, or see /metrics and \
                           /statusz";

/// Sets the verbosity of the log.
type Setter = Arc<dyn Fn(i32) + Send + Sync>;

/// Adds the pages under `/debug/`.
pub(super) fn with_pages(router: Router, set_verbosity: Setter) -> Router {
    let flags = |_| std::future::ready(answer::of_type(StatusCode::OK, "text/html; charset=utf-8", FLAGS));
    router
        .at("/debug/flags", READ_METHODS, flags)
        .under("/debug/flags/", READ_METHODS, flags)
        .at("/debug/flags/v", ANY, move |request| std::future::ready(verbosity(&request, &set_verbosity)))
        .at("/debug/pprof", READ_METHODS, |_| {
            let found = answer::of_type(StatusCode::FOUND, "text/html; charset=utf-8", FOUND);
            std::future::ready(answer::with_header(found, LOCATION, PPROF))
        })
        .under(PPROF, ANY, |request| std::future::ready(profile(request.path.strip_prefix(PPROF).unwrap_or_default())))
}

const FOUND: &str = "<a href=\"/debug/pprof/\">Found</a>.\n\n";

const FLAGS: &str = "<html><head><title>/debug/flags/</title></head><body>\n\
                     <p>Flags that can be changed at runtime:</p>\n\
                     <ul><li><code>v</code>: PUT a number to /debug/flags/v</li></ul>\n</body></html>\n";

fn verbosity(request: &IncomingRequest, set: &Setter) -> Answer {
    let text = |status, text: String| answer::no_sniff(answer::of_type(status, "text/plain", text + "\n"));
    if request.method != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
    }
    let body = String::from_utf8_lossy(&request.body);
    // upstream: these messages, from Go's library.
    match body.parse::<u32>().ok().and_then(|number| i32::try_from(number).ok()) {
        Some(number) => {
            set(number);
            text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {number}"))
        }
        None => {
            let is_number = !body.is_empty() && body.bytes().all(|byte| byte.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            text(StatusCode::BAD_REQUEST, format!("strconv.ParseUint: parsing {body:?}: {why}"))
        }
    }
}

fn profile(name: &str) -> Answer {
    match name {
        "" => answer::of_type(StatusCode::OK, "text/html; charset=utf-8", index()),
        name if PROFILES.contains(&name) => answer::failure(StatusCode::NOT_IMPLEMENTED, NO_PROFILES),
        _ => answer::failure(StatusCode::NOT_FOUND, "Unknown profile"),
    }
}

fn index() -> String {
    let profiles = PROFILES.join(", ");
    format!(
        "<html><head><title>/debug/pprof/</title></head><body>\n<p>Profiles ({profiles}) are not available: \
         {NO_PROFILES}.</p>\n</body></html>\n"
    )
}
