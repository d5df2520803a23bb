//! The built-in profiles and the `--clrevents` names of `dotnet-trace`, and how they are put
//! together with `--providers` into one request.

use crate::exit_code::{ExitCode, Failure};
use crate::providers::{self, Provider, RUNTIME};
use nettrace::pattern;

/// The rundown that a plain "rundown: yes" of the protocol means.
pub(crate) const DEFAULT_RUNDOWN: u64 = 0x8002_0139;

/// Name, keywords, level, one argument.
type ProfileProvider = (&'static str, u64, u8, Option<(&'static str, &'static str)>);

/// One built-in profile.
#[derive(Debug)]
pub(crate) struct Profile {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// What it is for, in one line.
    pub(crate) description: &'static str,
    providers: &'static [ProfileProvider],
    /// The rundown keyword it asks for.
    rundown: u64,
}

/// All profiles, in the order of `dotnet-trace list-profiles`.
pub(crate) const PROFILES: [Profile; 5] = [
    Profile {
        name: "dotnet-common",
        description: "Lightweight runtime events: GC, loader, JIT, exceptions, thread pool",
        providers: &[(RUNTIME, 0x10_0003_801D, 4, None)],
        rundown: DEFAULT_RUNDOWN,
    },
    Profile {
        name: "dotnet-sampled-thread-time",
        description: "Stacks of all managed threads about 100 times a second (wall-clock)",
        providers: &[(
            "Microsoft-DotNETCore-SampleProfiler",
            0xF000_0000_0000,
            4,
            None,
        )],
        rundown: DEFAULT_RUNDOWN,
    },
    Profile {
        name: "gc-verbose",
        description: "GC collections and samples of object allocations",
        providers: &[(RUNTIME, 0x8003, 5, None)],
        rundown: DEFAULT_RUNDOWN,
    },
    Profile {
        name: "gc-collect",
        description: "GC collections only, at very low overhead",
        providers: &[
            (RUNTIME, 0x1, 4, None),
            ("Microsoft-Windows-DotNETRuntimePrivate", 0x1, 4, None),
        ],
        rundown: 0x1,
    },
    Profile {
        name: "database",
        description: "ADO.NET and Entity Framework commands",
        providers: &[
            ("System.Threading.Tasks.TplEventSource", 0x80, 4, None),
            (
                "Microsoft-Diagnostics-DiagnosticSource",
                0x3,
                5,
                Some(("FilterAndPayloadSpecs", DATABASE_SPECS)),
            ),
        ],
        rundown: DEFAULT_RUNDOWN,
    },
];

/// The profiles used when nothing is asked for.
pub(crate) const DEFAULT_PROFILES: [&str; 2] = ["dotnet-common", "dotnet-sampled-thread-time"];

const DATABASE_SPECS: &str = concat!(
    "SqlClientDiagnosticListener/System.Data.SqlClient.WriteCommandBefore@Activity1Start:-",
    "Command;Command.CommandText;ConnectionId;Operation;Command.Connection.ServerVersion;",
    "Command.CommandTimeout;Command.CommandType;Command.Connection.ConnectionString;",
    "Command.Connection.Database;Command.Connection.DataSource;Command.Connection.PacketSize\r\n",
    "SqlClientDiagnosticListener/System.Data.SqlClient.WriteCommandAfter@Activity1Stop:\r\n",
    "Microsoft.EntityFrameworkCore/Microsoft.EntityFrameworkCore.Database.Command.",
    "CommandExecuting@Activity2Start:-Command.CommandText;Command;ConnectionId;IsAsync;",
    "Command.Connection.ClientConnectionId;Command.Connection.ServerVersion;",
    "Command.CommandTimeout;Command.CommandType;Command.Connection.ConnectionString;",
    "Command.Connection.Database;Command.Connection.DataSource;Command.Connection.PacketSize\r\n",
    "Microsoft.EntityFrameworkCore/Microsoft.EntityFrameworkCore.Database.Command.",
    "CommandExecuted@Activity2Stop:",
);

/// The names of `--clrevents` and their keyword bits.
pub(crate) const CLR_EVENTS: [(&str, u64); 41] = [
    ("gc", 0x1),
    ("gchandle", 0x2),
    ("assemblyloader", 0x4),
    ("fusion", 0x4),
    ("loader", 0x8),
    ("jit", 0x10),
    ("ngen", 0x20),
    ("startenumeration", 0x40),
    ("endenumeration", 0x80),
    ("security", 0x400),
    ("appdomainresourcemanagement", 0x800),
    ("jittracing", 0x1000),
    ("interop", 0x2000),
    ("contention", 0x4000),
    ("exception", 0x8000),
    ("threading", 0x1_0000),
    ("jittedmethodiltonativemap", 0x2_0000),
    ("overrideandsuppressngenevents", 0x4_0000),
    ("type", 0x8_0000),
    ("gcheapdump", 0x10_0000),
    ("gcsampledobjectallocationhigh", 0x20_0000),
    ("gcheapsurvivalandmovement", 0x40_0000),
    // The second spelling is that of the existing tool.
    ("gcheapcollect", 0x80_0000),
    ("managedheadcollect", 0x80_0000),
    ("gcheapandtypenames", 0x100_0000),
    ("gcsampledobjectallocationlow", 0x200_0000),
    ("perftrack", 0x2000_0000),
    ("stack", 0x4000_0000),
    ("threadtransfer", 0x8000_0000),
    ("debugger", 0x1_0000_0000),
    ("monitoring", 0x2_0000_0000),
    ("codesymbols", 0x4_0000_0000),
    ("eventsource", 0x8_0000_0000),
    ("compilation", 0x10_0000_0000),
    ("compilationdiagnostic", 0x20_0000_0000),
    ("methoddiagnostic", 0x40_0000_0000),
    ("typediagnostic", 0x80_0000_0000),
    ("jitinstrumentationdata", 0x100_0000_0000),
    ("profiler", 0x200_0000_0000),
    ("waithandle", 0x400_0000_0000),
    ("allocationsampling", 0x800_0000_0000),
];

/// What the command line asked to enable.
#[derive(Debug, Default)]
pub(crate) struct Asked<'a> {
    /// Values of `--providers`.
    pub(crate) providers: &'a [String],
    /// Names given to `--profile`.
    pub(crate) profiles: &'a [String],
    /// The value of `--clrevents`.
    pub(crate) clr_events: Option<&'a str>,
    /// The value of `--clreventlevel`.
    pub(crate) clr_event_level: Option<&'a str>,
    /// The value of `--rundown`.
    pub(crate) rundown: Option<bool>,
    /// The target has no .NET runtime, so the default profiles would record nothing.
    pub(crate) native: bool,
}

/// What will be requested.
#[derive(Debug)]
pub(crate) struct Request {
    /// The providers in the order they will be sent.
    pub(crate) providers: Vec<Provider>,
    /// The rundown keyword; 0 = no rundown.
    pub(crate) rundown_keyword: u64,
    /// Things the user should know about how the options were combined.
    pub(crate) notes: Vec<String>,
}

impl Request {
    /// Whether a provider that a pattern stands for is among those asked for.
    pub(crate) fn enables(&self, pattern: &str) -> bool {
        let is_it = |name: &str| name == providers::ALL || pattern::matches(pattern, name);
        self.providers.iter().any(|provider| is_it(&provider.name))
            // Says something of itself in every session.
            || pattern::matches(pattern, "Microsoft-DotNETCore-EventPipe")
    }
}

/// Puts the options together: `--providers` replaces a profile's entry of the same name, and
/// `--clrevents` yields to a runtime provider named by `--providers`.
pub(crate) fn combine(asked: &Asked<'_>) -> anyhow::Result<Request> {
    let argument = |message: String| Failure::new(ExitCode::Arguments, message);
    let mut notes = Vec::new();
    let mut list: Vec<Provider> = Vec::new();
    for text in asked.providers {
        let parsed = providers::parse_list(text, "--providers")
            .map_err(|error| argument(error.to_string()))?;
        for provider in parsed {
            providers::merge(&mut list, provider).map_err(|error| argument(error.to_string()))?;
        }
    }
    let explicit = list.len();

    let nothing =
        asked.providers.is_empty() && asked.profiles.is_empty() && asked.clr_events.is_none();
    let names: Vec<&str> = if nothing && asked.native {
        notes.push("nothing was asked for: using every provider of the program".to_owned());
        list.push(Provider {
            name: providers::ALL.to_owned(),
            keywords: u64::MAX,
            has_keywords: true,
            level: 5,
            arguments: Vec::new(),
            enabled_by: "default".to_owned(),
        });
        Vec::new()
    } else if nothing {
        notes.push(format!(
            "nothing was asked for: using the profiles {}",
            DEFAULT_PROFILES.join(" and ")
        ));
        DEFAULT_PROFILES.to_vec()
    } else {
        asked.profiles.iter().map(String::as_str).collect()
    };

    // Without a profile the target's usual rundown; a lone profile decides; several unite.
    let mut rundown = if names.is_empty() { DEFAULT_RUNDOWN } else { 0 };
    for name in names {
        let profile = PROFILES
            .iter()
            .find(|p| p.name.eq_ignore_ascii_case(name.trim()));
        let profile = profile.ok_or_else(|| argument(unknown_profile(name)))?;
        rundown |= profile.rundown;
        for (name, keywords, level, arg) in profile.providers {
            if list[..explicit]
                .iter()
                .any(|p| p.name.eq_ignore_ascii_case(name))
            {
                notes.push(format!(
                    "--providers {name} replaces that of profile {}",
                    profile.name
                ));
                continue;
            }
            let provider = Provider {
                name: (*name).to_owned(),
                keywords: *keywords,
                has_keywords: true,
                level: *level,
                arguments: arg
                    .iter()
                    .map(|(k, v)| ((*k).into(), (*v).into()))
                    .collect(),
                enabled_by: format!("--profile {}", profile.name),
            };
            providers::merge(&mut list, provider).map_err(|error| argument(error.to_string()))?;
        }
    }
    if !asked.providers.is_empty() {
        rundown |= DEFAULT_RUNDOWN;
    }

    if let Some(events) = asked.clr_events {
        let provider = clr_provider(events, asked.clr_event_level)?;
        if list[..explicit]
            .iter()
            .any(|p| p.name.eq_ignore_ascii_case(RUNTIME))
        {
            notes.push(format!(
                "--clrevents is ignored: --providers names {RUNTIME} already"
            ));
        } else {
            providers::merge(&mut list, provider).map_err(|error| argument(error.to_string()))?;
        }
    } else if asked.clr_event_level.is_some() {
        return Err(argument("--clreventlevel needs --clrevents".into()).into());
    }

    let without_keywords: Vec<&str> = list
        .iter()
        .filter(|provider| !provider.has_keywords)
        .map(|provider| provider.name.as_str())
        .collect();
    if !without_keywords.is_empty() {
        notes.push(format!(
            "{} without keywords: only events that have none come (NAME:ffffffffffffffff takes all)",
            without_keywords.join(", ")
        ));
    }

    notes.extend(
        list.iter()
            .filter_map(|provider| doubt(provider, asked.native)),
    );

    let rundown_keyword = match asked.rundown {
        Some(true) => DEFAULT_RUNDOWN,
        None => rundown,
        Some(false) => 0,
    };
    Ok(Request {
        providers: list,
        rundown_keyword,
        notes,
    })
}

/// What a provider is perhaps not meant to be: asked for so, nothing comes.
fn doubt(provider: &Provider, native: bool) -> Option<String> {
    let name = &provider.name;
    let is_limited = (provider.keywords, provider.level) != (u64::MAX, 5);
    if name == providers::ALL && is_limited && !native {
        let text = "'*' with fewer than all keywords, or below Verbose, is nothing for .NET: nothing comes of it";
        return Some(text.to_owned());
    }
    if name.contains(char::is_whitespace) {
        return Some(format!(
            "'{name}' is taken as one name, with its blanks (commas join providers)"
        ));
    }
    let mut parts = name.trim_matches(['{', '}']).split('-');
    let is_guid = [8, 4, 4, 4, 12].iter().all(|length| {
        let is_part = |part: &str| part.len() == *length && is_hexadecimal(part);
        parts.next().is_some_and(is_part)
    });
    (is_guid && parts.next().is_none()).then(|| {
        format!("'{name}' is taken as a name: processes do not know their providers by GUID")
    })
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn clr_provider(events: &str, level: Option<&str>) -> anyhow::Result<Provider> {
    let mut keywords = 0;
    for name in events
        .split(['+', ','])
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let found = CLR_EVENTS
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        let Some((_, bit)) = found else {
            let names: Vec<&str> = CLR_EVENTS.iter().map(|(name, _)| *name).collect();
            return Err(Failure::new(
                ExitCode::Arguments,
                format!("--clrevents: '{name}' is not one of {}", names.join(", ")),
            )
            .into());
        };
        keywords |= bit;
    }
    if keywords == 0 {
        return Err(Failure::new(ExitCode::Arguments, "--clrevents names no event group").into());
    }
    let level = match level {
        None => 4,
        Some(text) => providers::parse_level(text).ok_or_else(|| {
            Failure::new(
                ExitCode::Arguments,
                format!(
                    "--clreventlevel '{text}' is neither a number nor one of {}",
                    providers::LEVELS.join(", ")
                ),
            )
        })?,
    };
    Ok(Provider {
        name: RUNTIME.to_owned(),
        keywords,
        has_keywords: true,
        level,
        arguments: Vec::new(),
        enabled_by: "--clrevents".to_owned(),
    })
}

fn unknown_profile(name: &str) -> String {
    let names: Vec<&str> = PROFILES.iter().map(|p| p.name).collect();
    let hint = match name {
        "cpu-sampling" => {
            " ('cpu-sampling' was split into dotnet-common and dotnet-sampled-thread-time)"
        }
        _ => "",
    };
    format!("profile '{name}' is not one of {}{hint}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn nothing_asked_for_means_the_two_default_profiles() {
        let request = combine(&Asked::default()).unwrap();
        let got: Vec<(&str, u64, u8)> = request
            .providers
            .iter()
            .map(|p| (p.name.as_str(), p.keywords, p.level))
            .collect();
        assert_eq!(
            got,
            [
                (RUNTIME, 0x10_0003_801D, 4),
                ("Microsoft-DotNETCore-SampleProfiler", 0xF000_0000_0000, 4)
            ]
        );
        assert_eq!(request.rundown_keyword, DEFAULT_RUNDOWN);
        assert_eq!(request.notes.len(), 1);
    }

    #[test]
    fn without_a_dotnet_runtime_nothing_asked_for_means_everything() {
        let request = combine(&Asked {
            native: true,
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.providers.len(), 1);
        assert_eq!(
            (
                request.providers[0].name.as_str(),
                request.providers[0].keywords
            ),
            ("*", u64::MAX)
        );
        let providers = texts(&["A"]);
        let asked = Asked {
            native: true,
            providers: &providers,
            ..Asked::default()
        };
        assert_eq!(combine(&asked).unwrap().providers[0].name, "A");
    }

    #[test]
    fn a_named_provider_replaces_the_profiles_entry() {
        let providers = texts(&["microsoft-windows-dotnetruntime:1:5"]);
        let profiles = texts(&["dotnet-common", "gc-collect"]);
        let request = combine(&Asked {
            providers: &providers,
            profiles: &profiles,
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.providers.len(), 2);
        assert_eq!(
            (request.providers[0].keywords, request.providers[0].level),
            (1, 5)
        );
        assert_eq!(
            request.providers[1].name,
            "Microsoft-Windows-DotNETRuntimePrivate"
        );
        assert_eq!(request.notes.len(), 2);
    }

    #[test]
    fn who_chose_no_keywords_is_told_what_comes() {
        let notes = |providers: &[&str]| {
            let providers = texts(providers);
            combine(&Asked {
                providers: &providers,
                ..Asked::default()
            })
            .unwrap()
            .notes
        };
        assert_eq!(
            notes(&["A,B:1", "C::5"]),
            [
                "A, C without keywords: only events that have none come (NAME:ffffffffffffffff takes all)"
            ]
        );
        for chosen in ["A:1", "A:0", "A,a:1"] {
            assert_eq!(notes(&[chosen]), [""; 0], "{chosen}");
        }
    }

    #[test]
    fn what_is_perhaps_not_meant_so_is_said() {
        let notes = |name: &str, native| {
            let providers = texts(&[name]);
            let request = combine(&Asked {
                providers: &providers,
                native,
                ..Asked::default()
            });
            request.unwrap().notes.join("\n")
        };
        for all in ["*", "*:ffffffffffffffff:Verbose"] {
            assert_eq!(notes(all, false), "", "{all}");
        }
        for fewer in ["*:1", "*::Informational"] {
            assert!(notes(fewer, false).contains("nothing for .NET"), "{fewer}");
            assert_eq!(notes(fewer, true), "", "{fewer}");
        }
        assert!(notes("A B:1", false).contains("'A B' is taken as one name"));
        let guid = "{e13c0d23-ccbc-4e12-931b-d9cc2eee27e4}";
        assert!(notes(&format!("{guid}:1"), true).contains("by GUID"));
        assert_eq!(notes("e13c0d23-ccbc-4e12-931b:1", false), "");
    }

    #[test]
    fn clrevents_are_united_and_yield_to_a_named_runtime_provider() {
        let request = combine(&Asked {
            clr_events: Some("gc+GCHandle"),
            clr_event_level: Some("Verbose"),
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(
            (request.providers[0].keywords, request.providers[0].level),
            (3, 5)
        );
        let providers = texts(&["Microsoft-Windows-DotNETRuntime:8"]);
        let request = combine(&Asked {
            providers: &providers,
            clr_events: Some("gc"),
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.providers[0].keywords, 8);
        assert!(request.notes[0].contains("ignored"));
    }

    #[test]
    fn the_rundown_follows_the_profile_and_the_option() {
        let profiles = texts(&["gc-collect"]);
        let request = combine(&Asked {
            profiles: &profiles,
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.rundown_keyword, 1);
        let request = combine(&Asked {
            profiles: &profiles,
            rundown: Some(false),
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.rundown_keyword, 0);
        let profiles = texts(&["gc-collect", "gc-verbose"]);
        let request = combine(&Asked {
            profiles: &profiles,
            ..Asked::default()
        })
        .unwrap();
        assert_eq!(request.rundown_keyword, DEFAULT_RUNDOWN);
    }

    #[test]
    fn wrong_names_are_refused_with_the_list_of_right_ones() {
        let profiles = texts(&["cpu-sampling"]);
        let error = combine(&Asked {
            profiles: &profiles,
            ..Asked::default()
        })
        .unwrap_err();
        assert!(error.to_string().contains("dotnet-common"));
        assert_eq!(Failure::code_of(&error), ExitCode::Arguments);
        let error = combine(&Asked {
            clr_events: Some("gcc"),
            ..Asked::default()
        })
        .unwrap_err();
        assert!(error.to_string().contains("'gcc'"));
        let error = combine(&Asked {
            clr_event_level: Some("5"),
            ..Asked::default()
        })
        .unwrap_err();
        assert!(error.to_string().contains("--clrevents"));
    }

    #[test]
    fn the_database_profile_sends_the_specification_in_quotes() {
        let profiles = texts(&["database"]);
        let request = combine(&Asked {
            profiles: &profiles,
            ..Asked::default()
        })
        .unwrap();
        let text = request.providers[1].argument_text();
        assert!(text.starts_with("FilterAndPayloadSpecs=\"SqlClientDiagnosticListener/"));
        assert!(text.ends_with("CommandExecuted@Activity2Stop:\""));
        assert_eq!(text.matches("\r\n").count(), 3);
    }
}
