//! `/debug/`: the verbosity of the log, and profiles.
//!
//! Go's runtime profiles itself, and this program's does not: the profiles are where tools look for them, and say what to
//! use instead.

use std::sync::Arc;

use bowline_serving::answer::{self, Answer};
use bowline_serving::{ANY, IncomingRequest, READ_METHODS, Router};
use http::header::LOCATION;
use http::{Method, StatusCode};

/// The profiles that Go's managers have.
const PROFILES: [&str; 9] =
    ["allocs", "block", "goroutine", "heap", "mutex", "profile", "symbol", "threadcreate", "trace"];

const PPROF: &str = "/debug/pprof/";

/// What is said in place of a profile.
const NO_PROFILES: &str = "this program has no runtime that profiles it; use perf or another profiler of the system, \
                           and /metrics and /statusz for what it is doing";

/// Sets the verbosity of the log.
type Setter = Arc<dyn Fn(i32) + Send + Sync>;

/// With all of it.
pub(super) fn with_pages(site: Router, set_verbosity: Setter) -> Router {
    let flags = |_| std::future::ready(answer::of_type(StatusCode::OK, "text/html; charset=utf-8", FLAGS));
    site.at("/debug/flags", READ_METHODS, flags)
        .under("/debug/flags/", READ_METHODS, flags)
        .at("/debug/flags/v", ANY, move |asked| std::future::ready(verbosity(&asked, &set_verbosity)))
        .at("/debug/pprof", READ_METHODS, |_| {
            let found = answer::of_type(StatusCode::FOUND, "text/html; charset=utf-8", FOUND);
            std::future::ready(answer::with_header(found, LOCATION, PPROF))
        })
        .under(PPROF, ANY, |asked| std::future::ready(profile(asked.path.strip_prefix(PPROF).unwrap_or_default())))
}

const FOUND: &str = "<a href=\"/debug/pprof/\">Found</a>.\n\n";

const FLAGS: &str = "<html><head><title>/debug/flags/</title></head><body>\n\
                     <p>Flags that can be set while the program runs:</p>\n\
                     <ul><li><code>v</code>: PUT a number to /debug/flags/v</li></ul>\n</body></html>\n";

fn verbosity(asked: &IncomingRequest, set: &Setter) -> Answer {
    let text = |status, text: String| answer::no_sniff(answer::of_type(status, "text/plain", text + "\n"));
    if asked.method != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method".to_owned());
    }
    let body = String::from_utf8_lossy(&asked.body);
    // upstream: these words, of Go's library.
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
        "<html><head><title>/debug/pprof/</title></head><body>\n<p>Profiles asked for here ({profiles}) are not there: \
         {NO_PROFILES}.</p>\n</body></html>\n"
    )
}
