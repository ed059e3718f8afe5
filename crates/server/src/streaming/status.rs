//! How a command ended: as the runtime says it on the error stream, and as WebSocket clients want it on channel 3.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// The command ran, and ended with this code, which is not 0.
    Exit(u8),
    /// It did not run, or nobody knows how it ended.
    Failed(String),
}

/// `metav1.Status`, as much of it as is used.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Status {
    metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<i32>,
}

/// Always empty, and upstream always says so.
#[derive(Default, Deserialize, Serialize)]
struct Metadata {}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
const NON_ZERO_EXIT_CODE: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

impl Outcome {
    /// From what came on the error stream, all of it. Before v4 that was a text.
    pub fn of_error_stream(protocol: &str, message: &[u8]) -> Self {
        if message.is_empty() {
            return Self::Success;
        }
        if !matches!(protocol, "v5.channel.k8s.io" | "v4.channel.k8s.io") {
            let text = String::from_utf8_lossy(message);
            return Self::Failed(format!("error executing remote command: {text}"));
        }
        Self::of_status(message)
            .unwrap_or_else(|why| Self::Failed(format!("error stream protocol error: {why}")))
    }

    fn of_status(message: &[u8]) -> Result<Self, String> {
        let status: Status = serde_json::from_slice(message)
            .map_err(|error| format!("{error} in {:?}", String::from_utf8_lossy(message)))?;
        match (status.status.as_str(), status.reason.as_str()) {
            (SUCCESS, _) => Ok(Self::Success),
            (FAILURE, NON_ZERO_EXIT_CODE) => {
                let details = status.details.ok_or("details must be set")?;
                let code = details.causes.into_iter().find(|cause| cause.reason == EXIT_CODE);
                let code = code.ok_or("no ExitCode cause given")?.message;
                let exit = code.parse().map_err(|_| format!("invalid exit code value {code:?}"))?;
                Ok(Self::Exit(exit))
            }
            (FAILURE, _) => Ok(Self::Failed(status.message)),
            _ => Err("unknown error".to_owned()),
        }
    }

    pub fn to_json(&self) -> Vec<u8> {
        let cause = |reason: &str, message: &str| {
            let cause = Cause { reason: reason.to_owned(), message: message.to_owned() };
            Some(Details { causes: vec![cause] })
        };
        let status = match self {
            Self::Success => Status { status: SUCCESS.to_owned(), ..Status::default() },
            Self::Exit(code) => Status {
                status: FAILURE.to_owned(),
                message: format!(
                    "command terminated with non-zero exit code: command terminated with exit code {code}"
                ),
                reason: NON_ZERO_EXIT_CODE.to_owned(),
                details: cause(EXIT_CODE, &code.to_string()),
                ..Status::default()
            },
            Self::Failed(why) => Status {
                status: FAILURE.to_owned(),
                message: format!("Internal error occurred: {why}"),
                reason: "InternalError".to_owned(),
                details: cause("", why),
                code: Some(500),
                ..Status::default()
            },
        };
        serde_json::to_vec(&status).unwrap_or_default()
    }
}
