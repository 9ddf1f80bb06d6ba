--
-- PostgreSQL database dump
--

\restrict vzlN4AiZCWby0pUcvODdPqLsijv9MQ5vFjzDjAOtsvcGstxESkWRGUwKBfneOY9

-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: alembic_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: audit_records; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit_records (
    number bigint NOT NULL,
    "time" double precision NOT NULL,
    name text NOT NULL,
    role character varying(16) NOT NULL,
    serial character varying(64) NOT NULL,
    address text NOT NULL,
    call character varying(64) NOT NULL,
    details text NOT NULL,
    outcome character varying(16) NOT NULL,
    reason text NOT NULL,
    count bigint NOT NULL
);


--
-- Name: audit_records_number_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.audit_records_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: audit_records_number_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.audit_records_number_seq OWNED BY public.audit_records.number;


--
-- Name: authority; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.authority (
    sha256 character varying(64) NOT NULL
);


--
-- Name: blob_ownership; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blob_ownership (
    database character varying(32) NOT NULL,
    claimed boolean NOT NULL
);


--
-- Name: blob_references; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.blob_references (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    role character varying(255) NOT NULL,
    sha256 character varying(64) NOT NULL,
    size bigint NOT NULL
);


--
-- Name: certificates; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.certificates (
    serial character varying(64) NOT NULL,
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    expires double precision NOT NULL,
    rejected double precision NOT NULL,
    reason character varying(16) NOT NULL
);


--
-- Name: deployed_devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.deployed_devices (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    deployment bigint NOT NULL,
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    state character varying(16) NOT NULL,
    had boolean NOT NULL,
    reason text NOT NULL,
    score double precision,
    current_score double precision,
    samples bigint NOT NULL,
    fingerprint character varying(64) NOT NULL,
    "time" double precision NOT NULL
);


--
-- Name: deployments; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.deployments (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    number bigint NOT NULL,
    version integer NOT NULL,
    variant character varying(63) NOT NULL,
    labels json NOT NULL,
    trusted_labels boolean NOT NULL,
    percent double precision NOT NULL,
    max_drop double precision NOT NULL,
    status character varying(16) NOT NULL,
    created double precision NOT NULL,
    operator text NOT NULL
);


--
-- Name: deployments_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.deployments_version (
    version bigint NOT NULL
);


--
-- Name: deployments_version_version_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.deployments_version_version_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: deployments_version_version_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.deployments_version_version_seq OWNED BY public.deployments_version.version;


--
-- Name: device_outcomes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.device_outcomes (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    attempt bigint NOT NULL,
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    outcome character varying(16) NOT NULL,
    reason text NOT NULL,
    seconds double precision NOT NULL,
    "time" double precision NOT NULL
);


--
-- Name: device_reports; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.device_reports (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    attempt bigint NOT NULL,
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    outcome character varying(16) NOT NULL,
    reason text NOT NULL,
    samples bigint NOT NULL,
    steps bigint NOT NULL,
    metrics json NOT NULL,
    blobs json NOT NULL,
    decoded json NOT NULL,
    personal_lost boolean NOT NULL
);


--
-- Name: devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.devices (
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    enrolled double precision NOT NULL,
    last_seen double precision NOT NULL,
    certificate_expires double precision NOT NULL,
    public_key_sha256 character varying(64) NOT NULL,
    secret_sha256 character varying(64) NOT NULL,
    platform json NOT NULL,
    labels json NOT NULL,
    reported_labels json NOT NULL,
    release text NOT NULL,
    rounds integer NOT NULL,
    last_result json NOT NULL,
    revoked double precision NOT NULL
);


--
-- Name: draws; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.draws (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    secret bytea NOT NULL
);


--
-- Name: eligibility; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.eligibility (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    fingerprint character varying(64) NOT NULL,
    reason text NOT NULL,
    classes bytea NOT NULL,
    answered bigint NOT NULL
);


--
-- Name: evaluation_devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.evaluation_devices (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    outcome character varying(16) NOT NULL,
    reason text NOT NULL,
    samples bigint NOT NULL,
    score double precision NOT NULL,
    local_score double precision
);


--
-- Name: evaluations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.evaluations (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    number integer NOT NULL,
    model_sha256 character varying(64) NOT NULL,
    model_size bigint NOT NULL,
    opened double precision NOT NULL,
    deadline double precision NOT NULL,
    closed double precision NOT NULL
);


--
-- Name: held_out_scores; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.held_out_scores (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    test_set character varying(63) NOT NULL,
    score json NOT NULL
);


--
-- Name: installed_releases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.installed_releases (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    variant character varying(63) NOT NULL,
    previous integer NOT NULL
);


--
-- Name: leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.leases (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    holder character varying(63) NOT NULL,
    expires double precision NOT NULL
);


--
-- Name: metrics; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.metrics (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    name character varying(64) NOT NULL,
    value double precision NOT NULL
);


--
-- Name: online_devices; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.online_devices (
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    replica character varying(63) NOT NULL,
    info json NOT NULL,
    since bigint NOT NULL,
    last_heartbeat double precision NOT NULL,
    "left" boolean NOT NULL
);


--
-- Name: operator_requests; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operator_requests (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    action character varying(16) NOT NULL
);


--
-- Name: operators; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.operators (
    serial character varying(64) NOT NULL,
    operator character varying(63) NOT NULL COLLATE pg_catalog."C",
    role character varying(16) NOT NULL,
    public_key_sha256 character varying(64) NOT NULL,
    created double precision NOT NULL,
    created_by text NOT NULL,
    expires double precision NOT NULL,
    revoked double precision NOT NULL
);


--
-- Name: participants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.participants (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    attempt bigint NOT NULL,
    clipped bigint NOT NULL
);


--
-- Name: pins; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pins (
    replica character varying(63) NOT NULL,
    sha256 character varying(64) NOT NULL,
    until double precision NOT NULL
);


--
-- Name: privacy_releases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.privacy_releases (
    number bigint NOT NULL,
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    created double precision NOT NULL,
    round bigint NOT NULL,
    attempt bigint NOT NULL,
    mechanism character varying(16) NOT NULL,
    what text NOT NULL,
    delta double precision NOT NULL,
    sampling_rate double precision NOT NULL,
    noise_multiplier double precision NOT NULL,
    clip_norm double precision NOT NULL,
    next_clip_norm double precision NOT NULL,
    updates_digest character varying(64) NOT NULL,
    committed double precision NOT NULL
);


--
-- Name: privacy_releases_number_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.privacy_releases_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: privacy_releases_number_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.privacy_releases_number_seq OWNED BY public.privacy_releases.number;


--
-- Name: registry_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.registry_version (
    version bigint NOT NULL
);


--
-- Name: registry_version_version_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.registry_version_version_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: registry_version_version_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.registry_version_version_seq OWNED BY public.registry_version.version;


--
-- Name: release_blobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.release_blobs (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    sha256 character varying(64) NOT NULL,
    size bigint NOT NULL
);


--
-- Name: releases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.releases (
    name character varying(63) NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    created double precision NOT NULL,
    operator text NOT NULL,
    manifest_sha256 character varying(64) NOT NULL,
    manifest_size bigint NOT NULL,
    signature_sha256 character varying(64) NOT NULL,
    signature_size bigint NOT NULL,
    content text NOT NULL
);


--
-- Name: replicas; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.replicas (
    replica character varying(63) NOT NULL,
    expires double precision NOT NULL,
    schema integer NOT NULL
);


--
-- Name: rounds; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.rounds (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    round bigint NOT NULL,
    attempt bigint NOT NULL,
    status character varying(16) NOT NULL,
    cohort json NOT NULL,
    counted json NOT NULL,
    reason text NOT NULL,
    opened double precision NOT NULL,
    seconds double precision NOT NULL,
    updates integer NOT NULL,
    incidents json NOT NULL,
    bases json NOT NULL,
    replacements json NOT NULL,
    reused json NOT NULL,
    reusable json NOT NULL,
    phases json NOT NULL,
    outcomes json NOT NULL,
    received_bytes bigint NOT NULL,
    sent_bytes bigint NOT NULL,
    personal_lost integer NOT NULL
);


--
-- Name: runs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.runs (
    run character varying(63) NOT NULL COLLATE pg_catalog."C",
    created double precision NOT NULL,
    status character varying(16) NOT NULL,
    reason text NOT NULL,
    settings json NOT NULL,
    manifest_sha256 character varying(64) NOT NULL,
    manifest_size bigint NOT NULL,
    method text NOT NULL,
    metric json NOT NULL,
    initial_sha256 character varying(64) NOT NULL,
    initial_size bigint NOT NULL
);


--
-- Name: schema; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.schema (
    readable_from integer NOT NULL,
    release text NOT NULL
);


--
-- Name: tokens; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.tokens (
    secret_sha256 character varying(64) NOT NULL,
    uses integer NOT NULL,
    uses_left integer NOT NULL,
    expires double precision NOT NULL,
    created double precision NOT NULL,
    operator character varying(63) NOT NULL COLLATE pg_catalog."C",
    device character varying(63) NOT NULL COLLATE pg_catalog."C",
    revoked double precision NOT NULL
);


--
-- Name: webhook_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.webhook_events (
    number bigint NOT NULL,
    id character varying(63) NOT NULL,
    created double precision NOT NULL,
    body text NOT NULL,
    attempts integer NOT NULL,
    due double precision NOT NULL,
    claimed double precision NOT NULL,
    refused boolean NOT NULL
);


--
-- Name: webhook_events_number_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.webhook_events_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: webhook_events_number_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.webhook_events_number_seq OWNED BY public.webhook_events.number;


--
-- Name: audit_records number; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_records ALTER COLUMN number SET DEFAULT nextval('public.audit_records_number_seq'::regclass);


--
-- Name: deployments_version version; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployments_version ALTER COLUMN version SET DEFAULT nextval('public.deployments_version_version_seq'::regclass);


--
-- Name: privacy_releases number; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.privacy_releases ALTER COLUMN number SET DEFAULT nextval('public.privacy_releases_number_seq'::regclass);


--
-- Name: registry_version version; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.registry_version ALTER COLUMN version SET DEFAULT nextval('public.registry_version_version_seq'::regclass);


--
-- Name: webhook_events number; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhook_events ALTER COLUMN number SET DEFAULT nextval('public.webhook_events_number_seq'::regclass);


--
-- Data for Name: alembic_version; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.alembic_version (version_num) FROM stdin;
0001
\.


--
-- Data for Name: audit_records; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.audit_records (number, "time", name, role, serial, address, call, details, outcome, reason, count) FROM stdin;
1	1795918078.302107		coordinator	none		CreateOperator	create operator 'operator' with the role admin: certificate 609854a7780857bb9961e5d45b3069383a85169d, in the state directory	done		1
2	1795918096.489374	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:60696	CreateToken	create a join token for 4 devices, valid for 24 h: b2cf49d0241c	done		1
3	1795918097.895571	cam-1	device	479fa66653117c1f46b398c4fdc76daf7807b7cd	127.0.0.1:43940	Enrol	enrol; certificate 479fa66653117c1f46b398c4fdc76daf7807b7cd expires 2027-02-27 02:08 UTC	done		1
4	1795918098.935672	cam-2	device	5d73bfcecb82abab154743f917a7ad2df5eb013e	127.0.0.1:40372	Enrol	enrol; certificate 5d73bfcecb82abab154743f917a7ad2df5eb013e expires 2027-02-27 02:08 UTC	done		1
5	1795918099.843433	cam-3	device	61d25c5e426e719f91f6a456b9d0d1f16ef4f5be	127.0.0.1:40384	Enrol	enrol; certificate 61d25c5e426e719f91f6a456b9d0d1f16ef4f5be expires 2027-02-27 02:08 UTC	done		1
6	1795918100.461248	cam-4	device	66b044a9ead321682399525f5428f58f27256e23	127.0.0.1:40388	Enrol	enrol; certificate 66b044a9ead321682399525f5428f58f27256e23 expires 2027-02-27 02:08 UTC	done		1
7	1795918101.284055	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:33656	CreateOperator	create operator 'ann' with the role engineer: certificate 24d8bf9edf49b775293af2d3dce24972e681d0c6	done		1
8	1795918102.100541	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:33662	CreateOperator	create operator 'bob' with the role engineer: certificate 67037dd99a6b4dab07c76e379ea4d6bfaf281580	done		1
9	1795918102.995118	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:33676	RevokeOperator	revoke operator 'bob': certificates 67037dd99a6b4dab07c76e379ea4d6bfaf281580	done		1
10	1795918103.863434	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:33680	RevokeDevice	revoke device 'cam-4': certificates 66b044a9ead321682399525f5428f58f27256e23	done		1
11	1795918104.737072	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:33688	LabelDevice	labels of device 'cam-1': add 'site=berlin'	done		1
12	1795918109.758666	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:38884	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, 0c7f2bfa0c2a	done		1
13	1795918109.820148	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:38884	StartRun	start run 'digits' of bundle 4d80ab486bc3	done		1
14	1795918116.973615	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:38940	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, 0c7f2bfa0c2a	done		1
15	1795918116.988321	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:38940	StartRun	start run 'private' of bundle 4d80ab486bc3	done		1
16	1795918126.621487	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:57132	Upload	upload 14 files, 93 KB in all: 4d80ab486bc3, 7c7009a1f989, 24fb4ad752d5, 2637d6fe1c64, 7e3ad467cdda, 94b40ee11739, 5a1baf76a0c1, 62b98c87a2e6, 0bcfe7aa4815, bec2ff739d1b, 7427877c40fb, f7faaa06b7a3, b6a98c518011, 9850aed365bf	done		1
17	1795918126.673365	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:57132	CreateRelease	create version 1 of release 'digits' from round 3 of run 'digits', manifest 7e3ad467cdda	done		1
18	1795918128.033234	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:34534	DeployRelease	deploy version 1 of release 'digits' to 100 % of all devices: deployment 1, 3 devices	done		1
19	1795918130.241748	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:34574	EvaluateRun	evaluate the newest model of run 'digits' on devices, for up to 3600 s: evaluation 1 of model 3	done		1
20	1795918132.911689	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:34580	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, 0c7f2bfa0c2a	done		1
21	1795918132.919449	operator	admin	609854a7780857bb9961e5d45b3069383a85169d	127.0.0.1:34580	StartRun	start run 'open' of bundle 4d80ab486bc3	done		1
\.


--
-- Data for Name: authority; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.authority (sha256) FROM stdin;
8b0b7c6a0aa84829d6086c3108f6e3b2571cb6d18b0c6fdd7176a6863b0b685d
\.


--
-- Data for Name: blob_ownership; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_ownership (database, claimed) FROM stdin;
7ef61a5db9574b9aa0f09a5313ffe2bc	t
\.


--
-- Data for Name: blob_references; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_references (run, round, role, sha256, size) FROM stdin;
digits	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
digits	-1	signature.json	0c7f2bfa0c2a63f14c48b4494b4be443659453f8bcaeeccb30c41fe7f3f26502	850
digits	-1	initial.safetensors	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
digits	-1	model.onnx	82a98c884b4495f851077e8ba0ce3f7946324a35d65189dc7d00b93c489e1a79	3851
digits	-1	plan.json	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
digits	-1	plan.pt	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
digits	0	model	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
digits	1	model	64bbd1db36dcc45809cf954bc7b32ce529ba3f475f031ff7947409bf8bb647de	840
digits	2	model	c89e3bd447660a66230d13d9e60f6f87f00968be9b4e10b14a16fbcfafce302c	840
digits	3	model	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840
private	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
private	-1	signature.json	0c7f2bfa0c2a63f14c48b4494b4be443659453f8bcaeeccb30c41fe7f3f26502	850
private	-1	initial.safetensors	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	-1	model.onnx	82a98c884b4495f851077e8ba0ce3f7946324a35d65189dc7d00b93c489e1a79	3851
private	-1	plan.json	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
private	-1	plan.pt	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
private	0	model	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	1	model	ded55bafc5e3db10d4f9d44484b3e0df4e8a8fa9666af7c38705c42d2f56c397	840
private	2	model	da7d9f90d35704de988c11391728b8396a65d2184fcd597be761077f88881f44	840
private	3	model	0523cc32039b73ece0880d640aae8b7f33758f12976de8a8b38c7b4142fed71a	840
private	4	model	5256e7477512ebfa950d9af7b7e0e238b702c74afbf81ebbfa1cf2a2a1d71dbe	840
private	5	model	49605149dda6437592bb7c3b94fc717ab176ab3c7789f50f48c6b765124fce2c	840
private	6	model	c53117e40f12465d3a933837e753a403a33352148a774e0dfa07292c483a4b91	840
private	7	model	6252fc11e065dd2cb86186e571adffa39a06e05cea6ae38006d677ad8b2d25e4	840
private	8	model	9b2c403a62ef1383f7af42d308873f383a95233c9c2427f7189f5c0e2540be14	840
private	9	model	08b0399281cf56284bfd6da061665fd7a727b4938524f917968e38efb5667e48	840
private	10	model	fe8a06be77f939064fc7e45502751e238bbabbbf80908091d40acfb6de750458	840
open	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
open	-1	signature.json	0c7f2bfa0c2a63f14c48b4494b4be443659453f8bcaeeccb30c41fe7f3f26502	850
open	-1	initial.safetensors	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
open	-1	model.onnx	82a98c884b4495f851077e8ba0ce3f7946324a35d65189dc7d00b93c489e1a79	3851
open	-1	plan.json	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
open	-1	plan.pt	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
open	0	model	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
open	1	model	64bbd1db36dcc45809cf954bc7b32ce529ba3f475f031ff7947409bf8bb647de	840
open	2	model	c89e3bd447660a66230d13d9e60f6f87f00968be9b4e10b14a16fbcfafce302c	840
open	3	model	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840
open	4	model	815b475298ee76434bf60ddbb33d33f25ff0e3b7eb95edcf555cc12bcececaa4	840
\.


--
-- Data for Name: certificates; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.certificates (serial, device, expires, rejected, reason) FROM stdin;
479fa66653117c1f46b398c4fdc76daf7807b7cd	cam-1	1803694097	0	
5d73bfcecb82abab154743f917a7ad2df5eb013e	cam-2	1803694098	0	
61d25c5e426e719f91f6a456b9d0d1f16ef4f5be	cam-3	1803694099	0	
66b044a9ead321682399525f5428f58f27256e23	cam-4	1803694100	1795918103.8712177	revoked
\.


--
-- Data for Name: deployed_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deployed_devices (name, deployment, device, state, had, reason, score, current_score, samples, fingerprint, "time") FROM stdin;
digits	1	cam-2	installed	t		0.46153846153846156	\N	91	423062ed6b496a55b170360e54dccd26a51b85fc4a5b9253ba478d714c94e9ee	1795918129.1458466
digits	1	cam-1	installed	t		0.63	\N	100	f93f174e91273dc6647711248b96a372a5c873c6fafff5e221bf94c7afd59e63	1795918129.1635432
digits	1	cam-3	installed	t		0.4948453608247423	\N	97	31f8380d367dd651009cbd79c769dea7c42496c7ee074f9e63cbb20283701105	1795918129.1994357
\.


--
-- Data for Name: deployments; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deployments (name, number, version, variant, labels, trusted_labels, percent, max_drop, status, created, operator) FROM stdin;
digits	1	1	float32	{}	f	100	1	active	1795918128.0416696	operator
\.


--
-- Data for Name: deployments_version; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deployments_version (version) FROM stdin;
1
\.


--
-- Data for Name: device_outcomes; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.device_outcomes (run, round, attempt, device, outcome, reason, seconds, "time") FROM stdin;
digits	1	1	cam-1	counted		0.43826652799998556	1795918113.9594762
digits	1	1	cam-2	counted		0.43607053599998835	1795918113.9594762
digits	1	1	cam-3	counted		0.3864052679998622	1795918113.9594762
digits	2	1	cam-1	counted		0.23471203799999785	1795918114.3820832
digits	2	1	cam-2	counted		0.1807944879999468	1795918114.3820832
digits	2	1	cam-3	counted		0.23439687800009779	1795918114.3820832
digits	3	1	cam-1	counted		0.23555252400001336	1795918114.7580023
digits	3	1	cam-2	counted		0.19367765900005907	1795918114.7580023
digits	3	1	cam-3	counted		0.17409620399985215	1795918114.7580023
private	1	1	cam-1	counted		0.18832099200017183	1795918117.4956892
private	2	1	cam-1	counted		0.18367921600020054	1795918117.849357
private	2	1	cam-2	counted		0.20998624199978622	1795918117.849357
private	3	1	cam-1	counted		0.221507352999879	1795918118.33705
private	3	1	cam-2	counted		0.1930621510000492	1795918118.33705
private	3	1	cam-3	counted		0.24679410900012044	1795918118.33705
private	4	1	cam-1	counted		0.2444211729998642	1795918118.7941492
private	5	1	cam-1	counted		0.25473977299998296	1795918119.1532266
private	5	1	cam-2	counted		0.16754526699992311	1795918119.1532266
private	5	1	cam-3	counted		0.2544742770000994	1795918119.1532266
private	6	1	cam-2	counted		0.12465491800003292	1795918119.4536495
private	6	1	cam-3	counted		0.1972772819999591	1795918119.4536495
private	7	1	cam-1	counted		0.14616047100003016	1795918119.7817442
private	7	1	cam-2	counted		0.1479357359999085	1795918119.7817442
private	7	1	cam-3	counted		0.14420919399981358	1795918119.7817442
private	8	1	cam-1	counted		0.21617639100009	1795918120.141034
private	8	1	cam-2	counted		0.1530917979998776	1795918120.141034
private	8	1	cam-3	counted		0.25634187499986183	1795918120.141034
private	9	1	cam-1	counted		0.2749371299998984	1795918120.5722392
private	9	1	cam-2	counted		0.25203361600006247	1795918120.5722392
private	9	1	cam-3	counted		0.2608786049997889	1795918120.5722392
private	10	1	cam-1	counted		0.14382081500002641	1795918120.9180312
open	1	1	cam-1	counted		0.4245680629999242	1795918133.5201912
open	1	1	cam-2	counted		0.23161565400005202	1795918133.5201912
open	1	1	cam-3	counted		0.42485858500003815	1795918133.5201912
open	2	1	cam-1	counted		0.14404479399991033	1795918133.9288151
open	2	1	cam-2	counted		0.24876962799999092	1795918133.9288151
open	2	1	cam-3	counted		0.30397446500001024	1795918133.9288151
open	3	1	cam-1	counted		0.13956329600000572	1795918134.2663562
open	3	1	cam-2	counted		0.24835560500014253	1795918134.2663562
open	3	1	cam-3	counted		0.14046500899985404	1795918134.2663562
open	4	1	cam-1	counted		0.21390278300009413	1795918134.5685813
open	4	1	cam-2	counted		0.2017225149998012	1795918134.5685813
open	4	1	cam-3	counted		0.2009505150001587	1795918134.5685813
\.


--
-- Data for Name: device_reports; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.device_reports (run, round, attempt, device, outcome, reason, samples, steps, metrics, blobs, decoded, personal_lost) FROM stdin;
digits	1	1	cam-3	accepted		387	60	{"holdout_loss": 2.3293381523840204, "holdout_samples": 97.0, "holdout_accuracy": 0.12371134020618557, "loss": 2.1111735184987386}	{"model": ["1f32292d2217f899d164321641a5fc9ff0da91c6ef0db97beb55d090f57a6dc7", 840]}	{}	f
digits	1	1	cam-2	accepted		362	50	{"holdout_loss": 2.301025642143501, "holdout_samples": 91.0, "holdout_accuracy": 0.18681318681318682, "loss": 2.1731811332702637}	{"model": ["9a9b99571531841205e3fba8c99f7bec1e61265fe34eccff8c77d1ba172166d8", 840]}	{}	f
digits	1	1	cam-1	accepted		400	60	{"holdout_loss": 2.200595474243164, "holdout_samples": 100.0, "holdout_accuracy": 0.35, "loss": 1.9901459376017252}	{"model": ["b5b43fcb8fe5bf05abac7d612dabeca4be3d846f7281ef0f83bb94493cba02cd", 840]}	{}	f
digits	2	1	cam-2	accepted		362	50	{"holdout_loss": 2.2288158542507297, "holdout_samples": 91.0, "holdout_accuracy": 0.27472527472527475, "loss": 2.0978784561157227}	{"model": ["9f68abb82d179451543502f022456ebad67c8486cfa6a2f680c8e003409da931", 840]}	{}	f
digits	2	1	cam-3	accepted		387	60	{"holdout_loss": 2.2027244174603333, "holdout_samples": 97.0, "holdout_accuracy": 0.29896907216494845, "loss": 2.022431516647339}	{"model": ["7088f1d7773a8b222329b1eef7af9ad8754e75fd72e372a7a35e4708183362a5", 840]}	{}	f
digits	2	1	cam-1	accepted		400	60	{"holdout_loss": 2.149122619628906, "holdout_samples": 100.0, "holdout_accuracy": 0.44, "loss": 1.9149384180704752}	{"model": ["4d3e5334668f2c587dfc87a25ddeb90f09df1561beb746cd1e513bc2aa66d5b7", 840]}	{}	f
digits	3	1	cam-3	accepted		387	60	{"holdout_loss": 2.1292008862053, "holdout_samples": 97.0, "holdout_accuracy": 0.41237113402061853, "loss": 1.950279712677002}	{"model": ["6845c37777698ec5de53dc73e9485029edd895d7d565a6ac5b90cb0c506c9068", 840]}	{}	f
digits	3	1	cam-2	accepted		362	50	{"holdout_loss": 2.167045677101219, "holdout_samples": 91.0, "holdout_accuracy": 0.4065934065934066, "loss": 2.0447536849975587}	{"model": ["456e53dcc84d609c506abc26b350674d4530bc3dddd3f4de8fe50bd579809294", 840]}	{}	f
digits	3	1	cam-1	accepted		400	60	{"holdout_loss": 2.073952865600586, "holdout_samples": 100.0, "holdout_accuracy": 0.57, "loss": 1.836133352915446}	{"model": ["4159f48eea74ee52b9c032df4357df42e60f47f819ff7db96206145202004581", 840]}	{}	f
private	1	1	cam-1	accepted		400	60	{}	{"model": ["b67b3e7363c925c379a71024912c9278c12070381b679125cee4be74038792f0", 840]}	{}	f
private	2	1	cam-1	accepted		400	60	{}	{"model": ["e7f19250bc300a9185ed821309a1509b69796e621560e40829205642ecf70b54", 840]}	{}	f
private	2	1	cam-2	accepted		362	50	{}	{"model": ["803c02f38ed856d1eac249e818e2a0daa7b7eac6f3dfcc8260dce7f84e6d8199", 840]}	{}	f
private	3	1	cam-2	accepted		362	50	{}	{"model": ["853169717ae4e48c5cb89acf65ead378ac6ea4c28443f4c9944c33cdcff2d936", 840]}	{}	f
private	3	1	cam-1	accepted		400	60	{}	{"model": ["dbd916fc6380b0c7f4c9d60aabc2d4fbea7133ca316d010e7d09315227495952", 840]}	{}	f
private	3	1	cam-3	accepted		387	60	{}	{"model": ["7781fc313fa7f3a6da2135bf80de5b4c3c71d8d0f188acc3825bc3a24d021a31", 840]}	{}	f
private	4	1	cam-1	accepted		400	60	{}	{"model": ["ebabdaab640300611155652ae418ac1edd9ef880ae6bce09a7a5c7c29e41cad4", 840]}	{}	f
private	5	1	cam-2	accepted		362	50	{}	{"model": ["c1d8925155f5a241fc49174d25e7c17bfbcc72ce90729a13db6b845403035be7", 840]}	{}	f
private	5	1	cam-3	accepted		387	60	{}	{"model": ["94663ca789f6b0cdc1ecf85d0788a2994c5d47d5015b759314e5f079ef720cad", 840]}	{}	f
private	5	1	cam-1	accepted		400	60	{}	{"model": ["0949b3201de25f7322a0bfa27a3fc5e2c036170baa10a2f8c7daf0461d9525bd", 840]}	{}	f
private	6	1	cam-2	accepted		362	50	{}	{"model": ["97e5ae00afd2cff0c19903196ce233bed9516a99a912ce5d092fc2c509c9e689", 840]}	{}	f
private	6	1	cam-3	accepted		387	60	{}	{"model": ["4528c5129f50b9e0d5cbe3573b92602b4b695108711a80968a0c304b08897090", 840]}	{}	f
private	7	1	cam-1	accepted		400	60	{}	{"model": ["0b551473f95c0547371ee67ad833831831d4bb8e5a2b1a922e0d7af71c867976", 840]}	{}	f
private	7	1	cam-3	accepted		387	60	{}	{"model": ["ceb31f7590c4422c6cd3b000283005cb8177c95e7db6fe7cb92ac74d6fa0ffc1", 840]}	{}	f
private	7	1	cam-2	accepted		362	50	{}	{"model": ["0feb60e3fee8ddf784544516ffc018ba68d0d7d97e9f99ce6d76dc4a81060af0", 840]}	{}	f
private	8	1	cam-2	accepted		362	50	{}	{"model": ["a5e48af2bb4a5845d20c2233be5d2700b3bc22f8730ef2dd8aa796cad7f7bc1b", 840]}	{}	f
private	8	1	cam-1	accepted		400	60	{}	{"model": ["dc5aa7c59ae60a57e09c40bc6329687e82aa74a1f721f675f072ed19275b2b07", 840]}	{}	f
private	8	1	cam-3	accepted		387	60	{}	{"model": ["c253dd1dba3244f3aedb8c4217b0f8806ece55e14d93a0317065c158e5fa0d7b", 840]}	{}	f
private	9	1	cam-2	accepted		362	50	{}	{"model": ["f3a66c3204102f33cc0e43038d2263ad220a9ec5c15ec8212a3468bb3f03a343", 840]}	{}	f
private	9	1	cam-3	accepted		387	60	{}	{"model": ["4619810d37893e68b8b0b4a7d4c0a2bf783818f7e3faf644b0b524e4db32bf8c", 840]}	{}	f
private	9	1	cam-1	accepted		400	60	{}	{"model": ["011981f48f4e26811883b6353d231ad2033b3ce2de3c04a956852839ecc9b80e", 840]}	{}	f
private	10	1	cam-1	accepted		400	60	{}	{"model": ["6ec7e71b8b5ea67fa95b8618b8927adfa96c4c92d6a31e247d7807f474038889", 840]}	{}	f
open	1	1	cam-2	accepted		362	50	{"holdout_loss": 2.301025642143501, "holdout_samples": 91.0, "holdout_accuracy": 0.18681318681318682, "loss": 2.1731811332702637}	{"model": ["9a9b99571531841205e3fba8c99f7bec1e61265fe34eccff8c77d1ba172166d8", 840]}	{}	f
open	1	1	cam-1	accepted		400	60	{"holdout_loss": 2.200595474243164, "holdout_samples": 100.0, "holdout_accuracy": 0.35, "loss": 1.9901459376017252}	{"model": ["b5b43fcb8fe5bf05abac7d612dabeca4be3d846f7281ef0f83bb94493cba02cd", 840]}	{}	f
open	1	1	cam-3	accepted		387	60	{"holdout_loss": 2.3293381523840204, "holdout_samples": 97.0, "holdout_accuracy": 0.12371134020618557, "loss": 2.1111735184987386}	{"model": ["1f32292d2217f899d164321641a5fc9ff0da91c6ef0db97beb55d090f57a6dc7", 840]}	{}	f
open	2	1	cam-1	accepted		400	60	{"holdout_loss": 2.149122619628906, "holdout_samples": 100.0, "holdout_accuracy": 0.44, "loss": 1.9149384180704752}	{"model": ["4d3e5334668f2c587dfc87a25ddeb90f09df1561beb746cd1e513bc2aa66d5b7", 840]}	{}	f
open	3	1	cam-1	accepted		400	60	{"holdout_loss": 2.073952865600586, "holdout_samples": 100.0, "holdout_accuracy": 0.57, "loss": 1.836133352915446}	{"model": ["4159f48eea74ee52b9c032df4357df42e60f47f819ff7db96206145202004581", 840]}	{}	f
open	2	1	cam-2	accepted		362	50	{"holdout_loss": 2.2288158542507297, "holdout_samples": 91.0, "holdout_accuracy": 0.27472527472527475, "loss": 2.0978784561157227}	{"model": ["9f68abb82d179451543502f022456ebad67c8486cfa6a2f680c8e003409da931", 840]}	{}	f
open	3	1	cam-3	accepted		387	60	{"holdout_loss": 2.1292008862053, "holdout_samples": 97.0, "holdout_accuracy": 0.41237113402061853, "loss": 1.950279712677002}	{"model": ["6845c37777698ec5de53dc73e9485029edd895d7d565a6ac5b90cb0c506c9068", 840]}	{}	f
open	4	1	cam-1	accepted		400	60	{"holdout_loss": 1.9964366912841798, "holdout_samples": 100.0, "holdout_accuracy": 0.63, "loss": 1.764956013361613}	{"model": ["d1a44887b4ae675382069a526f83a63b37d45f63ff383b7ccbe5453c5f35e283", 840]}	{}	f
open	2	1	cam-3	accepted		387	60	{"holdout_loss": 2.2027244174603333, "holdout_samples": 97.0, "holdout_accuracy": 0.29896907216494845, "loss": 2.022431516647339}	{"model": ["7088f1d7773a8b222329b1eef7af9ad8754e75fd72e372a7a35e4708183362a5", 840]}	{}	f
open	3	1	cam-2	accepted		362	50	{"holdout_loss": 2.167045677101219, "holdout_samples": 91.0, "holdout_accuracy": 0.4065934065934066, "loss": 2.0447536849975587}	{"model": ["456e53dcc84d609c506abc26b350674d4530bc3dddd3f4de8fe50bd579809294", 840]}	{}	f
open	4	1	cam-3	accepted		387	60	{"holdout_loss": 2.058330575215448, "holdout_samples": 97.0, "holdout_accuracy": 0.4948453608247423, "loss": 1.8851110458374023}	{"model": ["5ab409050543389909cf5ce90d83df6774c46c4a5c1d54eb0f253edb2a27dda6", 840]}	{}	f
open	4	1	cam-2	accepted		362	50	{"holdout_loss": 2.1135630764804043, "holdout_samples": 91.0, "holdout_accuracy": 0.46153846153846156, "loss": 1.9915108680725098}	{"model": ["a288bd5047b1c1328877f626ee068fea6d7444ba17067d677005a6907ccdd8bb", 840]}	{}	f
\.


--
-- Data for Name: devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.devices (device, enrolled, last_seen, certificate_expires, public_key_sha256, secret_sha256, platform, labels, reported_labels, release, rounds, last_result, revoked) FROM stdin;
cam-4	1795918100.3099277	1795918100.3099277	1803694100	8f16cf9f917934f214fc8d6e01e6e4bc69130c5748c9984b496d86b5252ea889	b2cf49d0241cfac518c2593994010d813bba016ad5d170f5bf65bd62476c3834	{}	{}	{}		0	{}	1795918103.872108
cam-1	1795918097.8403223	1795918108.6244202	1803694097	01f97bc2ae20cb9cb8c5bf3f0711ecc1d7386007562b6bbc99418af5dda139b9	b2cf49d0241cfac518c2593994010d813bba016ad5d170f5bf65bd62476c3834	{"torch": "2.13.0+cpu", "python": "3.11.7", "architecture": "x86_64", "threads": "1", "processor": "AMD EPYC", "system": "Debian GNU/Linux 12 (bookworm)", "memory": "25276510208", "accelerator": "cpu", "plans": "torchscript/4, graph/1"}	{"site": "berlin"}	{"sandbox": "strict"}	0.1.0	16	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795918134.5685813, "seconds": 0.0}	0
cam-2	1795918098.9257374	1795918108.4245985	1803694098	77e5afb0844434473df750d449de32fe9dcf93393397f42f450ac986b6fef106	b2cf49d0241cfac518c2593994010d813bba016ad5d170f5bf65bd62476c3834	{"torch": "2.13.0+cpu", "processor": "AMD EPYC", "architecture": "x86_64", "threads": "1", "python": "3.11.7", "system": "Debian GNU/Linux 12 (bookworm)", "memory": "25276510208", "accelerator": "cpu", "plans": "torchscript/4, graph/1"}	{}	{"sandbox": "strict"}	0.1.0	14	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795918134.5685813, "seconds": 0.0}	0
cam-3	1795918099.8366957	1795918108.7805	1803694099	4ac629eba638720ed68a5118e55c496ead68f673948bcf80b405609782a4f118	b2cf49d0241cfac518c2593994010d813bba016ad5d170f5bf65bd62476c3834	{"torch": "2.13.0+cpu", "architecture": "x86_64", "processor": "AMD EPYC", "threads": "1", "python": "3.11.7", "system": "Debian GNU/Linux 12 (bookworm)", "memory": "25276510208", "accelerator": "cpu", "plans": "torchscript/4, graph/1"}	{}	{"sandbox": "strict"}	0.1.0	13	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795918134.5685813, "seconds": 0.0}	0
\.


--
-- Data for Name: draws; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.draws (run, secret) FROM stdin;
digits	\\x5a17674e12183aa01896cb2e8455f6e616dabb5d439712137e9c6eb0184c7927
private	\\xfbee317ab9bd5f1d57fc7cf552c8925d0e4322c5865b72c708c272645b62b1cb
open	\\x802026fd941a21a5cadd5dbe929eecd695c9f2df64248137ee38dbe7aca0418a
\.


--
-- Data for Name: eligibility; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.eligibility (run, device, fingerprint, reason, classes, answered) FROM stdin;
digits	cam-1	f93f174e91273dc6647711248b96a372a5c873c6fafff5e221bf94c7afd59e63		\\xff02	1795918113359295
digits	cam-2	423062ed6b496a55b170360e54dccd26a51b85fc4a5b9253ba478d714c94e9ee		\\xbf03	1795918113396137
digits	cam-3	31f8380d367dd651009cbd79c769dea7c42496c7ee074f9e63cbb20283701105		\\xff03	1795918113457967
private	cam-2	423062ed6b496a55b170360e54dccd26a51b85fc4a5b9253ba478d714c94e9ee		\\x	1795918117129503
private	cam-1	f93f174e91273dc6647711248b96a372a5c873c6fafff5e221bf94c7afd59e63		\\x	1795918117135406
private	cam-3	31f8380d367dd651009cbd79c769dea7c42496c7ee074f9e63cbb20283701105		\\x	1795918117139465
open	cam-3	31f8380d367dd651009cbd79c769dea7c42496c7ee074f9e63cbb20283701105		\\xff03	1795918132948479
open	cam-1	f93f174e91273dc6647711248b96a372a5c873c6fafff5e221bf94c7afd59e63		\\xff02	1795918132953662
open	cam-2	423062ed6b496a55b170360e54dccd26a51b85fc4a5b9253ba478d714c94e9ee		\\xbf03	1795918132953662
\.


--
-- Data for Name: evaluation_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.evaluation_devices (run, round, device, outcome, reason, samples, score, local_score) FROM stdin;
digits	3	cam-3	scored		97	0.4948453608247423	0.3402061855670103
digits	3	cam-2	scored		91	0.46153846153846156	0.2857142857142857
digits	3	cam-1	scored		100	0.63	0.54
\.


--
-- Data for Name: evaluations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.evaluations (run, round, number, model_sha256, model_size, opened, deadline, closed) FROM stdin;
digits	3	1	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840	1795918130.253682	1795921730.253682	1795918130.398863
\.


--
-- Data for Name: held_out_scores; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.held_out_scores (run, round, test_set, score) FROM stdin;
\.


--
-- Data for Name: installed_releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.installed_releases (name, device, version, variant, previous) FROM stdin;
digits	cam-2	1	float32	0
digits	cam-1	1	float32	0
digits	cam-3	1	float32	0
\.


--
-- Data for Name: leases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.leases (run, holder, expires) FROM stdin;
\.


--
-- Data for Name: metrics; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.metrics (run, round, name, value) FROM stdin;
digits	1	train_loss	2.08857623754877
digits	0	holdout_accuracy	0.2222222222222222
digits	0	holdout_loss	2.275689866807726
digits	0	holdout_samples	288
digits	2	train_loss	2.0087801264443876
digits	1	holdout_accuracy	0.3402777777777778
digits	1	holdout_loss	2.1923568513658314
digits	1	holdout_samples	288
digits	3	train_loss	1.9403067223161832
digits	2	holdout_accuracy	0.4652777777777778
digits	2	holdout_loss	2.121975448396471
digits	2	holdout_samples	288
open	1	train_loss	2.08857623754877
open	0	holdout_accuracy	0.2222222222222222
open	0	holdout_loss	2.275689866807726
open	0	holdout_samples	288
open	2	train_loss	2.0087801264443876
open	1	holdout_accuracy	0.3402777777777778
open	1	holdout_loss	2.1923568513658314
open	1	holdout_samples	288
open	3	train_loss	1.9403067223161832
open	2	holdout_accuracy	0.4652777777777778
open	2	holdout_loss	2.121975448396471
open	2	holdout_samples	288
open	4	train_loss	1.8768035807884842
open	3	holdout_accuracy	0.53125
open	3	holdout_loss	2.0542915794584484
open	3	holdout_samples	288
\.


--
-- Data for Name: online_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.online_devices (device, replica, info, since, last_heartbeat, "left") FROM stdin;
\.


--
-- Data for Name: operator_requests; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.operator_requests (run, action) FROM stdin;
\.


--
-- Data for Name: operators; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.operators (serial, operator, role, public_key_sha256, created, created_by, expires, revoked) FROM stdin;
609854a7780857bb9961e5d45b3069383a85169d	operator	admin	7af3381df9696b828798b4901b1dd1bc263a0cf8521a6315696721de9e9f9f37	1795918078.0253673		1827454078	0
24d8bf9edf49b775293af2d3dce24972e681d0c6	ann	engineer	103fcd9b8a631fccf5b32b45760dd6758a92d47e20bdabb632e013c300db45dd	1795918101.292285	operator	1827454101	0
67037dd99a6b4dab07c76e379ea4d6bfaf281580	bob	engineer	c51bf173e4a3d2b924248fb8a7f60a91951f1fdc21b1be70d2055dfa12fa8bf2	1795918102.1077023	operator	1827454102	1795918102.9993534
\.


--
-- Data for Name: participants; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.participants (run, device, round, attempt, clipped) FROM stdin;
digits	cam-1	3	1	0
digits	cam-2	3	1	0
digits	cam-3	3	1	0
private	cam-2	9	1	0
private	cam-3	9	1	0
private	cam-1	10	1	0
open	cam-1	4	1	0
open	cam-2	4	1	0
open	cam-3	4	1	0
\.


--
-- Data for Name: pins; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.pins (replica, sha256, until) FROM stdin;
\.


--
-- Data for Name: privacy_releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.privacy_releases (number, run, created, round, attempt, mechanism, what, delta, sampling_rate, noise_multiplier, clip_norm, next_clip_norm, updates_digest, committed) FROM stdin;
1	private	1795918117.0827143	1	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	1775ee2833db44e563ead3488dcb9b8773f9ab833dea7d725b66483dcc40c404	1795918117.5032873
2	private	1795918117.0827143	2	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	624e1bf0bf18ef0bb7345ec10c98d383035b9faef19331992c4df2fe7ac05c5a	1795918117.852239
3	private	1795918117.0827143	3	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	50489c2170dfe2fda2bd3fce3ae1e55daa433864797f8638b84c477c5ea1a83b	1795918118.3490431
4	private	1795918117.0827143	4	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	607ec7e85875a0f319d2d8bccbcd03c9176accf19f38c54c43ca5d3bd4e6655c	1795918118.8014069
5	private	1795918117.0827143	5	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	5af35576940058f14d4a9c5c623769f3543e99086d1f3d89a271da810fc7ae40	1795918119.158626
6	private	1795918117.0827143	6	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	bf089d1b9e5e608ad1fa41a1c64bf4f5cdface10a40eea5d5a654a1185175b18	1795918119.4764755
7	private	1795918117.0827143	7	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	136c6d29bf6a3274a9fedcad9003d4f688a11265af72e8a1cf439a059a21758e	1795918119.7846832
8	private	1795918117.0827143	8	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	922d7b8ded312eb54b9a1bac8fb5e0e170ef237faacd0666c6eeef30082f4c3e	1795918120.1591737
9	private	1795918117.0827143	9	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	f4ac2d7a53c5792aebf8019b96e1c5dab0cfb72f864405d9b7811db167fe9a81	1795918120.5746922
10	private	1795918117.0827143	10	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	793c2bb7eb0fceff069aedbbdaab1b83bf4819ecd12a21bba24343bd66e800fd	1795918120.924321
\.


--
-- Data for Name: registry_version; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.registry_version (version) FROM stdin;
3
\.


--
-- Data for Name: release_blobs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.release_blobs (name, version, sha256, size) FROM stdin;
digits	1	0bcfe7aa4815a096e00057be02e6b62a71323814a9e0b6eac1d76c93659f62d2	10573
digits	1	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
digits	1	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840
digits	1	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
digits	1	5a1baf76a0c172e30754a5b4e65e0b223c05918717b16a2de67c57aee62df29d	2921
digits	1	62b98c87a2e6fa5e7a4dfbd659430f77bcbc52aad83cbf5e882a2a6d8bfd898a	3032
digits	1	7427877c40fb0361401248f9c96abe6117396bc6ab16811b5b1706274c02443e	20
digits	1	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
digits	1	7e3ad467cdda2c6b83531e48be778301db87e897b757710bb2652c26982dcee0	1753
digits	1	94b40ee11739de4dd0d210c7180e13a7f79cf2891cce79e49e7f834c2baa7bc0	839
digits	1	9850aed365bf1b3e1ab35db9f72fcb29b47579ae56b111469c313dfeb0997788	6106
digits	1	b6a98c5180119a24ec4e8dd0db8b99d5a12f294addfc35d43fed83ef52f9f07a	1924
digits	1	bec2ff739d1ba0776d0612ad614e0a1b293f07fbedc299c8e770e7eef78cabda	814
digits	1	f7faaa06b7a36eb310199cf77455851eef169b08cc83f1e18d3e2bcb889e3d3c	1376
\.


--
-- Data for Name: releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.releases (name, version, created, operator, manifest_sha256, manifest_size, signature_sha256, signature_size, content) FROM stdin;
digits	1	1795918126.6791964	operator	7e3ad467cdda2c6b83531e48be778301db87e897b757710bb2652c26982dcee0	1753	94b40ee11739de4dd0d210c7180e13a7f79cf2891cce79e49e7f834c2baa7bc0	839	{"created":1795918126,"evaluation":{"data_sha256":"942bf5dc67c5ab24906e26cf6ff61bd306bb1b046da531dbf78354e7054805ab","samples":360,"score":0.5694444444444444},"format":"moonfed-release/2","input":{"kind":"image","shape":[8,8,1]},"metric":{"maximise":true,"name":"accuracy","share":true,"unit":""},"name":"digits","pictures":{"float32":{"confusion.svg":{"sha256":"9850aed365bf1b3e1ab35db9f72fcb29b47579ae56b111469c313dfeb0997788","size":6106}}},"plan":{"manifest.json":{"sha256":"4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67","size":2647},"plan.json":{"sha256":"24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78","size":12042},"plan.pt":{"sha256":"7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c","size":47777},"weights.safetensors":{"sha256":"2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273","size":840}},"round":3,"run":"digits","target":{"kind":"class","names":["0","1","2","3","4","5","6","7","8","9"],"shape":[]},"variants":{"float32":{"MODEL_CARD.md":{"sha256":"62b98c87a2e6fa5e7a4dfbd659430f77bcbc52aad83cbf5e882a2a6d8bfd898a","size":3032},"bom.cdx.json":{"sha256":"0bcfe7aa4815a096e00057be02e6b62a71323814a9e0b6eac1d76c93659f62d2","size":10573},"config.pbtxt":{"sha256":"bec2ff739d1ba0776d0612ad614e0a1b293f07fbedc299c8e770e7eef78cabda","size":814},"evaluation.json":{"sha256":"f7faaa06b7a36eb310199cf77455851eef169b08cc83f1e18d3e2bcb889e3d3c","size":1376},"labels.txt":{"sha256":"7427877c40fb0361401248f9c96abe6117396bc6ab16811b5b1706274c02443e","size":20},"model.onnx":{"sha256":"5a1baf76a0c172e30754a5b4e65e0b223c05918717b16a2de67c57aee62df29d","size":2921},"model.sig":{"sha256":"b6a98c5180119a24ec4e8dd0db8b99d5a12f294addfc35d43fed83ef52f9f07a","size":1924}}},"version":1}
\.


--
-- Data for Name: replicas; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.replicas (replica, expires, schema) FROM stdin;
\.


--
-- Data for Name: rounds; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.rounds (run, round, attempt, status, cohort, counted, reason, opened, seconds, updates, incidents, bases, replacements, reused, reusable, phases, outcomes, received_bytes, sent_bytes, personal_lost) FROM stdin;
digits	1	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918113.4666069	0.47241089599992847	3	[]	{}	[]	{}	{}	{"training": 0.4383695120000084, "upload": 0.01841072999991411, "waiting": 0.0021074599999337806, "reduction": 0.007984727000120984, "commit": 0.005538466999951197}	{"counted": 3}	2520	2520	0
private	9	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918120.1678398	0.3994839239999237	3	[]	{}	[]	{}	{}	{"training": 0.3035176439998395, "upload": 0.06575174700014941, "waiting": 0.006739360999972632, "reduction": 0.012712800999906904, "commit": 0.010762371000055282}	{"counted": 3}	2520	2520	0
digits	2	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918113.9819503	0.3949286750000738	3	[]	{}	[]	{}	{}	{"training": 0.25348413699998673, "upload": 0.07242761299994527, "waiting": 0.017027219000055993, "reduction": 0.03790569200009486, "commit": 0.01408401399999093}	{"counted": 3}	2520	2520	0
digits	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918114.3981695	0.35398240799986525	3	[]	{}	[]	{}	{}	{"training": 0.2816099069998472, "upload": 0.04307027200002267, "waiting": 0.0016253720000349858, "reduction": 0.012894561999928555, "commit": 0.014782295000031809}	{"counted": 3}	2520	2520	0
open	4	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918134.2773576	0.285196797000026	3	[]	{}	[]	{}	{}	{"training": 0.23282430500012197, "upload": 0.029313885999954437, "waiting": 0.0026222770000003948, "reduction": 0.016322570000056658, "commit": 0.004113758999892525}	{"counted": 3}	2520	2520	0
private	1	1	committed	["cam-1"]	["cam-1"]		1795918117.1483407	0.3289816780002184	1	[]	{}	[]	{}	{}	{"training": 0.18840509700021357, "upload": 0.07939334200000303, "waiting": 0.013731248999874879, "reduction": 0.025944710999965537, "commit": 0.02150727900016136}	{"counted": 1}	840	840	0
private	10	1	committed	["cam-1"]	["cam-1"]		1795918120.583151	0.32715961899998547	1	[]	{}	[]	{}	{}	{"training": 0.18395943900009115, "upload": 0.09199397599991244, "waiting": 0.011405113000137135, "reduction": 0.014354737999838107, "commit": 0.02544635300000664}	{"counted": 1}	840	840	0
private	2	1	committed	["cam-1", "cam-2"]	["cam-1", "cam-2"]		1795918117.5312476	0.29969574400001875	2	[]	{}	[]	{}	{}	{"training": 0.23824314299986327, "upload": 0.021755444000064017, "waiting": 0.012016423999966719, "reduction": 0.017210902999977407, "commit": 0.01046983000014734}	{"counted": 2}	1680	1680	0
private	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918117.9098344	0.3842056550001871	3	[]	{}	[]	{}	{}	{"training": 0.25667759500015563, "upload": 0.07639563499992619, "waiting": 0.002390342000126111, "reduction": 0.029545129999860364, "commit": 0.01919695300011881}	{"counted": 3}	2520	2520	0
open	5	1	open	["cam-1", "cam-2", "cam-3"]	[]		1795918134.591446	0	0	[]	{}	[]	{}	{}	{}	{}	0	0	0
private	4	1	committed	["cam-1"]	["cam-1"]		1795918118.3690898	0.4164627960001326	1	[]	{}	[]	{}	{}	{"training": 0.2685555519999525, "upload": 0.08210127699999248, "waiting": 0.005156743000043207, "reduction": 0.02990172199997687, "commit": 0.030747502000167515}	{"counted": 1}	840	840	0
open	1	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918132.9585342	0.548491156999944	3	[]	{}	[]	{}	{}	{"training": 0.42501450800000384, "upload": 0.06984405899993362, "waiting": 0.0029619229999298113, "reduction": 0.04582512699994368, "commit": 0.004845540000133042}	{"counted": 3}	2520	2520	0
private	5	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918118.829693	0.3194028169998546	3	[]	{}	[]	{}	{}	{"training": 0.27401722499985226, "upload": 0.025267467000048782, "waiting": 0.0015582710000217048, "reduction": 0.009551961999932246, "commit": 0.009007891999999629}	{"counted": 3}	2520	2520	0
private	6	1	committed	["cam-2", "cam-3"]	["cam-2", "cam-3"]		1795918119.1724863	0.27750312400007715	2	[]	{}	[]	{}	{}	{"training": 0.22134250800013433, "upload": 0.027334636999967188, "waiting": 0.001789656000028117, "reduction": 0.010711769999943499, "commit": 0.016324553000004016}	{"counted": 2}	1680	1680	0
private	7	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918119.5757504	0.19233763800002635	3	[]	{}	[]	{}	{}	{"training": 0.15297566499998538, "upload": 0.02138900900013141, "waiting": 0.005509117999963564, "reduction": 0.00632572499989692, "commit": 0.006138121000049068}	{"counted": 3}	2520	2520	0
open	2	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918133.550127	0.37145142100007433	3	[]	{}	[]	{}	{}	{"training": 0.34021561200006545, "upload": 0.011667583999951603, "waiting": 0.0021160019998660573, "reduction": 0.007558332000144219, "commit": 0.009893891000047006}	{"counted": 3}	2520	2520	0
private	8	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918119.7978814	0.3362610300000597	3	[]	{}	[]	{}	{}	{"training": 0.2768469059999461, "upload": 0.019626052000148775, "waiting": 0.003951727999947252, "reduction": 0.01556621300005645, "commit": 0.02027013099996111}	{"counted": 3}	2520	2520	0
open	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795918133.9498649	0.3112593029998152	3	[]	{}	[]	{}	{}	{"training": 0.2501697679999779, "upload": 0.011731759999975111, "waiting": 0.002292815999908271, "reduction": 0.02109662800012302, "commit": 0.02596833099983087}	{"counted": 3}	2520	2520	0
\.


--
-- Data for Name: runs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.runs (run, created, status, reason, settings, manifest_sha256, manifest_size, method, metric, initial_sha256, initial_size) FROM stdin;
digits	1795918109.8468864	finished		{"rounds": 3, "stop_after": 0, "target_metrics": {}, "cohort": "all", "minimum_devices": 3, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 1.25, "clip_norm": 0.0, "clip_factor": 1.25, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {}, "population": 0, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	1795918117.0827143	finished		{"rounds": 10, "stop_after": 0, "target_metrics": {}, "cohort": "2", "minimum_devices": 1, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 0.0, "clip_norm": 1.0, "clip_factor": 0.0, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {"epsilon": 8, "delta": 0.001, "noise_multiplier": 1.243374}, "population": 3, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
open	1795918132.9282138	running		{"rounds": 50, "stop_after": 0, "target_metrics": {}, "cohort": "all", "minimum_devices": 3, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 1.25, "clip_norm": 0.0, "clip_factor": 1.25, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {}, "population": 0, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
\.


--
-- Data for Name: schema; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.schema (readable_from, release) FROM stdin;
1	0.1.0
\.


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tokens (secret_sha256, uses, uses_left, expires, created, operator, device, revoked) FROM stdin;
b2cf49d0241cfac518c2593994010d813bba016ad5d170f5bf65bd62476c3834	4	0	1796004496.50756	1795918096.50756	operator		0
\.


--
-- Data for Name: webhook_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.webhook_events (number, id, created, body, attempts, due, claimed, refused) FROM stdin;
2	evt_0c350e93090e45dba45be157c4802461	1795918120.947491	{"id":"evt_0c350e93090e45dba45be157c4802461","type":"run.ended","time":"2026-11-29T02:08:40Z","data":{"run":"private","status":"finished","round":10,"reason":""}}	0	1795918120.947491	0	f
1	evt_a7a32095002d460799b36c9722f4e45b	1795918114.780692	{"id":"evt_a7a32095002d460799b36c9722f4e45b","type":"run.ended","time":"2026-11-29T02:08:34Z","data":{"run":"digits","status":"finished","round":3,"reason":""}}	5	1795918138.0401547	0	f
\.


--
-- Name: audit_records_number_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.audit_records_number_seq', 21, true);


--
-- Name: deployments_version_version_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.deployments_version_version_seq', 1, false);


--
-- Name: privacy_releases_number_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.privacy_releases_number_seq', 10, true);


--
-- Name: registry_version_version_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.registry_version_version_seq', 1, false);


--
-- Name: webhook_events_number_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.webhook_events_number_seq', 2, true);


--
-- Name: alembic_version alembic_version_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkey PRIMARY KEY (version_num);


--
-- Name: audit_records audit_records_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_records
    ADD CONSTRAINT audit_records_pkey PRIMARY KEY (number);


--
-- Name: authority authority_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.authority
    ADD CONSTRAINT authority_pkey PRIMARY KEY (sha256);


--
-- Name: blob_ownership blob_ownership_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_ownership
    ADD CONSTRAINT blob_ownership_pkey PRIMARY KEY (database);


--
-- Name: blob_references blob_references_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_references
    ADD CONSTRAINT blob_references_pkey PRIMARY KEY (run, round, role);


--
-- Name: certificates certificates_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.certificates
    ADD CONSTRAINT certificates_pkey PRIMARY KEY (serial);


--
-- Name: deployed_devices deployed_devices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployed_devices
    ADD CONSTRAINT deployed_devices_pkey PRIMARY KEY (name, deployment, device);


--
-- Name: deployments deployments_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployments
    ADD CONSTRAINT deployments_pkey PRIMARY KEY (name, number);


--
-- Name: deployments_version deployments_version_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployments_version
    ADD CONSTRAINT deployments_version_pkey PRIMARY KEY (version);


--
-- Name: device_outcomes device_outcomes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_outcomes
    ADD CONSTRAINT device_outcomes_pkey PRIMARY KEY (run, round, attempt, device);


--
-- Name: device_reports device_reports_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_reports
    ADD CONSTRAINT device_reports_pkey PRIMARY KEY (run, round, attempt, device);


--
-- Name: devices devices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.devices
    ADD CONSTRAINT devices_pkey PRIMARY KEY (device);


--
-- Name: draws draws_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.draws
    ADD CONSTRAINT draws_pkey PRIMARY KEY (run);


--
-- Name: eligibility eligibility_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.eligibility
    ADD CONSTRAINT eligibility_pkey PRIMARY KEY (run, device);


--
-- Name: evaluation_devices evaluation_devices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.evaluation_devices
    ADD CONSTRAINT evaluation_devices_pkey PRIMARY KEY (run, round, device);


--
-- Name: evaluations evaluations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.evaluations
    ADD CONSTRAINT evaluations_pkey PRIMARY KEY (run, round);


--
-- Name: held_out_scores held_out_scores_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.held_out_scores
    ADD CONSTRAINT held_out_scores_pkey PRIMARY KEY (run, round, test_set);


--
-- Name: installed_releases installed_releases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.installed_releases
    ADD CONSTRAINT installed_releases_pkey PRIMARY KEY (name, device);


--
-- Name: leases leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_pkey PRIMARY KEY (run);


--
-- Name: metrics metrics_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_pkey PRIMARY KEY (run, round, name);


--
-- Name: online_devices online_devices_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.online_devices
    ADD CONSTRAINT online_devices_pkey PRIMARY KEY (device);


--
-- Name: operator_requests operator_requests_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operator_requests
    ADD CONSTRAINT operator_requests_pkey PRIMARY KEY (run);


--
-- Name: operators operators_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operators
    ADD CONSTRAINT operators_pkey PRIMARY KEY (serial);


--
-- Name: participants participants_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.participants
    ADD CONSTRAINT participants_pkey PRIMARY KEY (run, device);


--
-- Name: pins pins_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pins
    ADD CONSTRAINT pins_pkey PRIMARY KEY (replica, sha256);


--
-- Name: privacy_releases privacy_releases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.privacy_releases
    ADD CONSTRAINT privacy_releases_pkey PRIMARY KEY (number);


--
-- Name: privacy_releases privacy_releases_run_created_round_mechanism_what_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.privacy_releases
    ADD CONSTRAINT privacy_releases_run_created_round_mechanism_what_key UNIQUE (run, created, round, mechanism, what);


--
-- Name: registry_version registry_version_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.registry_version
    ADD CONSTRAINT registry_version_pkey PRIMARY KEY (version);


--
-- Name: release_blobs release_blobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_blobs
    ADD CONSTRAINT release_blobs_pkey PRIMARY KEY (name, version, sha256);


--
-- Name: releases releases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.releases
    ADD CONSTRAINT releases_pkey PRIMARY KEY (name, version);


--
-- Name: replicas replicas_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.replicas
    ADD CONSTRAINT replicas_pkey PRIMARY KEY (replica);


--
-- Name: rounds rounds_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.rounds
    ADD CONSTRAINT rounds_pkey PRIMARY KEY (run, round, attempt);


--
-- Name: runs runs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (run);


--
-- Name: tokens tokens_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (secret_sha256);


--
-- Name: webhook_events webhook_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.webhook_events
    ADD CONSTRAINT webhook_events_pkey PRIMARY KEY (number);


--
-- Name: ix_blob_references_sha256; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_blob_references_sha256 ON public.blob_references USING btree (sha256);


--
-- Name: ix_certificates_device; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_certificates_device ON public.certificates USING btree (device);


--
-- Name: ix_certificates_rejected; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_certificates_rejected ON public.certificates USING btree (rejected);


--
-- Name: ix_deployed_devices_device; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_deployed_devices_device ON public.deployed_devices USING btree (device);


--
-- Name: ix_devices_revoked; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_devices_revoked ON public.devices USING btree (revoked);


--
-- Name: ix_evaluations_closed; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_evaluations_closed ON public.evaluations USING btree (closed);


--
-- Name: ix_installed_releases_device; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_installed_releases_device ON public.installed_releases USING btree (device);


--
-- Name: ix_online_devices_replica; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_online_devices_replica ON public.online_devices USING btree (replica);


--
-- Name: ix_operators_operator; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_operators_operator ON public.operators USING btree (operator);


--
-- Name: ix_operators_revoked; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_operators_revoked ON public.operators USING btree (revoked);


--
-- Name: ix_release_blobs_sha256; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_release_blobs_sha256 ON public.release_blobs USING btree (sha256);


--
-- Name: blob_references blob_references_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.blob_references
    ADD CONSTRAINT blob_references_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: deployed_devices deployed_devices_name_deployment_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployed_devices
    ADD CONSTRAINT deployed_devices_name_deployment_fkey FOREIGN KEY (name, deployment) REFERENCES public.deployments(name, number);


--
-- Name: deployments deployments_name_version_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.deployments
    ADD CONSTRAINT deployments_name_version_fkey FOREIGN KEY (name, version) REFERENCES public.releases(name, version);


--
-- Name: device_outcomes device_outcomes_run_round_attempt_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_outcomes
    ADD CONSTRAINT device_outcomes_run_round_attempt_fkey FOREIGN KEY (run, round, attempt) REFERENCES public.rounds(run, round, attempt);


--
-- Name: device_reports device_reports_run_round_attempt_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_reports
    ADD CONSTRAINT device_reports_run_round_attempt_fkey FOREIGN KEY (run, round, attempt) REFERENCES public.rounds(run, round, attempt);


--
-- Name: draws draws_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.draws
    ADD CONSTRAINT draws_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: eligibility eligibility_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.eligibility
    ADD CONSTRAINT eligibility_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: evaluation_devices evaluation_devices_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.evaluation_devices
    ADD CONSTRAINT evaluation_devices_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: evaluations evaluations_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.evaluations
    ADD CONSTRAINT evaluations_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: held_out_scores held_out_scores_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.held_out_scores
    ADD CONSTRAINT held_out_scores_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: leases leases_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT leases_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: metrics metrics_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.metrics
    ADD CONSTRAINT metrics_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: operator_requests operator_requests_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.operator_requests
    ADD CONSTRAINT operator_requests_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: participants participants_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.participants
    ADD CONSTRAINT participants_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- Name: release_blobs release_blobs_name_version_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.release_blobs
    ADD CONSTRAINT release_blobs_name_version_fkey FOREIGN KEY (name, version) REFERENCES public.releases(name, version);


--
-- Name: rounds rounds_run_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.rounds
    ADD CONSTRAINT rounds_run_fkey FOREIGN KEY (run) REFERENCES public.runs(run);


--
-- PostgreSQL database dump complete
--

\unrestrict vzlN4AiZCWby0pUcvODdPqLsijv9MQ5vFjzDjAOtsvcGstxESkWRGUwKBfneOY9

