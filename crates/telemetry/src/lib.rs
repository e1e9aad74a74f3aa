//! Telemetry of the manager: logs, traces, metrics and status, in the formats of the Go managers.
//!
//! ```text
//! tracing events ──► logging     lines as klog or zapr writes them
//! tracing spans  ──► traces      OTLP over HTTP, if the environment names a collector
//! registry       ──► exposition  Prometheus text format, number for number as Go writes it
//! /proc          ──► process     the metrics `process_*`
//! status board   ──► statusz     the page `/statusz`
//! ```
//!
//! This crate knows neither Kubernetes nor a cloud.

pub mod exposition;
pub mod logging;
pub mod process;
pub mod statusz;
pub mod traces;
