--
-- PostgreSQL database dump
--


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
1	1795920454.952702		coordinator	none		CreateOperator	create operator 'operator' with the role admin: certificate 620e9455d5d818c0bceb99d62d499cda18f34928, in the state directory	done		1
2	1795920467.701817	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:34950	CreateToken	create a join token for 4 devices, valid for 24 h: a05825dfd286	done		1
3	1795920468.232576	cam-1	device	695bd399898ee6241a27486c4c61820ec51482a2	127.0.0.1:34336	Enrol	enrol; certificate 695bd399898ee6241a27486c4c61820ec51482a2 expires 2027-02-27 02:47 UTC	done		1
4	1795920468.688044	cam-2	device	f43a872e996deb6f5c4c602dfc3bb4770a20c51	127.0.0.1:34366	Enrol	enrol; certificate f43a872e996deb6f5c4c602dfc3bb4770a20c51 expires 2027-02-27 02:47 UTC	done		1
5	1795920469.143883	cam-3	device	7a63b3d26027321b4382375a2875f2316ff5a8e9	127.0.0.1:34388	Enrol	enrol; certificate 7a63b3d26027321b4382375a2875f2316ff5a8e9 expires 2027-02-27 02:47 UTC	done		1
6	1795920469.634902	cam-4	device	7ed688693b7c95b19b7846cbbd38f6d5679e361a	127.0.0.1:34404	Enrol	enrol; certificate 7ed688693b7c95b19b7846cbbd38f6d5679e361a expires 2027-02-27 02:47 UTC	done		1
7	1795920470.157672	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36850	CreateOperator	create operator 'ann' with the role engineer: certificate 76b676a88bafe841a6e655e6f1da50a738aa3ee5	done		1
8	1795920470.721585	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36856	CreateOperator	create operator 'bob' with the role engineer: certificate 7198327fc2abd7d7a789c145809d6bf0f905cac1	done		1
9	1795920471.232168	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36872	RevokeOperator	revoke operator 'bob': certificates 7198327fc2abd7d7a789c145809d6bf0f905cac1	done		1
10	1795920471.773391	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36882	RevokeDevice	revoke device 'cam-4': certificates 7ed688693b7c95b19b7846cbbd38f6d5679e361a	done		1
11	1795920472.294371	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36886	LabelDevice	labels of device 'cam-1': add 'site=berlin'	done		1
12	1795920474.63351	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36914	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, ac2033e30c54	done		1
13	1795920474.698578	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:36914	StartRun	start run 'digits' of bundle 4d80ab486bc3	done		1
14	1795920481.630173	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:48840	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, ac2033e30c54	done		1
15	1795920481.642206	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:48840	StartRun	start run 'private' of bundle 4d80ab486bc3	done		1
16	1795920488.782954	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:48896	Upload	upload 14 files, 93 KB in all: 4d80ab486bc3, 7c7009a1f989, 24fb4ad752d5, 2637d6fe1c64, c2b94bac4eb5, 4e51394a16c6, 19ce6a44456f, c9f4b5024508, 5a1622a058a7, bec2ff739d1b, 7427877c40fb, f7faaa06b7a3, c8abd23c9754, 9850aed365bf	done		1
17	1795920488.867991	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:48896	CreateRelease	create version 1 of release 'digits' from round 3 of run 'digits', manifest c2b94bac4eb5	done		1
18	1795920490.063904	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:54696	DeployRelease	deploy version 1 of release 'digits' to 100 % of all devices: deployment 1, 3 devices	done		1
19	1795920492.037656	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:54704	EvaluateRun	evaluate the newest model of run 'digits' on devices, for up to 3600 s: evaluation 1 of model 3	done		1
20	1795920494.847949	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:54712	Upload	upload 6 files, 68 KB in all: 4d80ab486bc3, d9b237c73d1f, 82a98c884b44, 24fb4ad752d5, 7c7009a1f989, ac2033e30c54	done		1
21	1795920494.862866	operator	admin	620e9455d5d818c0bceb99d62d499cda18f34928	127.0.0.1:54712	StartRun	start run 'open' of bundle 4d80ab486bc3	done		1
\.


--
-- Data for Name: authority; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.authority (sha256) FROM stdin;
17fbf529018c9f967d5142156e3d914878be1fe6bf54e583018ed9c25b257b48
\.


--
-- Data for Name: blob_ownership; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_ownership (database, claimed) FROM stdin;
915077b5b4fb42289ca137b1fcd4bb8c	t
\.


--
-- Data for Name: blob_references; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.blob_references (run, round, role, sha256, size) FROM stdin;
digits	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
digits	-1	signature.json	ac2033e30c54ac3335e3507540baae5f07bae32b8255f48bf7f90a385a358a6e	850
digits	-1	initial.safetensors	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
digits	-1	model.onnx	82a98c884b4495f851077e8ba0ce3f7946324a35d65189dc7d00b93c489e1a79	3851
digits	-1	plan.json	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
digits	-1	plan.pt	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
digits	0	model	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
digits	1	model	64bbd1db36dcc45809cf954bc7b32ce529ba3f475f031ff7947409bf8bb647de	840
digits	2	model	c89e3bd447660a66230d13d9e60f6f87f00968be9b4e10b14a16fbcfafce302c	840
digits	3	model	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840
private	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
private	-1	signature.json	ac2033e30c54ac3335e3507540baae5f07bae32b8255f48bf7f90a385a358a6e	850
private	-1	initial.safetensors	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	-1	model.onnx	82a98c884b4495f851077e8ba0ce3f7946324a35d65189dc7d00b93c489e1a79	3851
private	-1	plan.json	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
private	-1	plan.pt	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
private	0	model	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	1	model	1b1c975030cceb0fda4cb1038a052280405767245896971e7d329cb06e5544ce	840
private	2	model	1a1e31cc87677cf84a440f7c7d9f65c9807e2e09c5801aae8f7c049904356cd1	840
private	3	model	55c34318355c997a46f14221527dfe91cc3c5ea448b0f3089b27ea37616efc92	840
private	4	model	50792b016351ea8a1cecf13ea6907d69adba4af72a28e44811800a6602bce202	840
private	5	model	507b257eea446492681b4acc0cdf82fa2ff32b2421e6f2dbd0d71f439ef1da00	840
private	6	model	75860d36973b4209838d9f31a28cde19696dbc113ed07aa4edfa9902ec2c8495	840
private	7	model	3cfa9747642e34ba553291f26652301956a893ba1cb8f66f7f01311f27d24b7f	840
private	8	model	47b9fdd5b93c2c82de784a40678ec0068aab61a406e2888efe38110eb34b19bf	840
private	9	model	2efc8b625d9df096dd57d03a85421f9168186effc379be09952873f5a10d51c6	840
private	10	model	c58537608c9f1b28860819e4c657ee4a065eb5e0bac8cfc810eb35dd5bafe550	840
open	-1	manifest.json	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
open	-1	signature.json	ac2033e30c54ac3335e3507540baae5f07bae32b8255f48bf7f90a385a358a6e	850
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
695bd399898ee6241a27486c4c61820ec51482a2	cam-1	1803696468	0	
f43a872e996deb6f5c4c602dfc3bb4770a20c51	cam-2	1803696468	0	
7a63b3d26027321b4382375a2875f2316ff5a8e9	cam-3	1803696469	0	
7ed688693b7c95b19b7846cbbd38f6d5679e361a	cam-4	1803696469	1795920471.7801003	revoked
\.


--
-- Data for Name: deployed_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deployed_devices (name, deployment, device, state, had, reason, score, current_score, samples, fingerprint, "time") FROM stdin;
digits	1	cam-3	installed	t		0.4948453608247423	\N	97	7479c6c29da9bb24184aaa72bd76bf602e900ad950d7ad3d36134550f6ab4b83	1795920491.0400424
digits	1	cam-1	installed	t		0.63	\N	100	fbba5c8b29dd82cd51746d0d3e07ba9da0b99fa1eab8ee398eb209bf8becd819	1795920491.0660026
digits	1	cam-2	installed	t		0.46153846153846156	\N	91	9251840674e2a8aab65f47770d209eb849d7bd8d3a2711edc863481499362af9	1795920491.0752711
\.


--
-- Data for Name: deployments; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.deployments (name, number, version, variant, labels, trusted_labels, percent, max_drop, status, created, operator) FROM stdin;
digits	1	1	float32	{}	f	100	1	active	1795920490.072746	operator
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
digits	1	1	cam-1	counted		0.5501443989996915	1795920478.8563664
digits	1	1	cam-2	counted		0.3628863599997203	1795920478.8563664
digits	1	1	cam-3	counted		0.40703408800072793	1795920478.8563664
digits	2	1	cam-1	counted		0.20148651800082007	1795920479.2354634
digits	2	1	cam-2	counted		0.19551967900042655	1795920479.2354634
digits	2	1	cam-3	counted		0.2051475730004313	1795920479.2354634
digits	3	1	cam-1	counted		0.28300833699995565	1795920479.649688
digits	3	1	cam-2	counted		0.22627083599945763	1795920479.649688
digits	3	1	cam-3	counted		0.26185566000003746	1795920479.649688
private	1	1	cam-1	counted		0.20888085000024148	1795920482.1376648
private	1	1	cam-2	counted		0.2058064299999387	1795920482.1376648
private	2	1	cam-1	counted		0.27132835400061595	1795920482.516234
private	2	1	cam-3	counted		0.28434058699986053	1795920482.516234
private	3	1	cam-1	counted		0.16564005899999756	1795920482.87653
private	3	1	cam-2	counted		0.12265477799974178	1795920482.87653
private	3	1	cam-3	counted		0.26173459500023455	1795920482.87653
private	4	1	cam-1	counted		0.11525836799955869	1795920483.113341
private	4	1	cam-3	counted		0.1523106739996365	1795920483.113341
private	5	1	cam-1	counted		0.2537443990004249	1795920483.4868984
private	5	1	cam-2	counted		0.27528655500009336	1795920483.4868984
private	5	1	cam-3	counted		0.24855656899944734	1795920483.4868984
private	6	1	cam-1	counted		0.23670201299955806	1795920483.940634
private	6	1	cam-2	counted		0.236474274000102	1795920483.940634
private	6	1	cam-3	counted		0.1286193350006215	1795920483.940634
private	7	1	cam-2	counted		0.13036643900068157	1795920484.1764283
private	8	1	cam-1	counted		0.16856429099971137	1795920484.4801285
private	8	1	cam-2	counted		0.16765094000038516	1795920484.4801285
private	8	1	cam-3	counted		0.1050423269998646	1795920484.4801285
private	9	1	cam-1	counted		0.17170523599997978	1795920484.771815
private	9	1	cam-2	counted		0.16802924900002836	1795920484.771815
private	10	1	cam-1	counted		0.1559703470002205	1795920485.0077968
private	10	1	cam-3	counted		0.14919677499983663	1795920485.0077968
open	1	1	cam-1	counted		0.2522433040003307	1795920495.4495628
open	1	1	cam-2	counted		0.18353576299978158	1795920495.4495628
open	1	1	cam-3	counted		0.25835064300008526	1795920495.4495628
open	2	1	cam-1	counted		0.2141825599992444	1795920495.8140864
open	2	1	cam-2	counted		0.2262547469999845	1795920495.8140864
open	2	1	cam-3	counted		0.1596105250000619	1795920495.8140864
open	3	1	cam-1	counted		0.1586857570000575	1795920496.1057897
open	3	1	cam-2	counted		0.15157920899946475	1795920496.1057897
open	3	1	cam-3	counted		0.10492583900031605	1795920496.1057897
open	4	1	cam-1	counted		0.22826394500043534	1795920496.516812
open	4	1	cam-2	counted		0.23082299800080364	1795920496.516812
open	4	1	cam-3	counted		0.3090758509997613	1795920496.516812
\.


--
-- Data for Name: device_reports; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.device_reports (run, round, attempt, device, outcome, reason, samples, steps, metrics, blobs, decoded, personal_lost) FROM stdin;
digits	1	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.1731811332702637, "holdout_accuracy": 0.18681318681318682, "holdout_loss": 2.301025642143501}	{"model": ["9a9b99571531841205e3fba8c99f7bec1e61265fe34eccff8c77d1ba172166d8", 840]}	{}	f
digits	1	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 2.1111735184987386, "holdout_accuracy": 0.12371134020618557, "holdout_loss": 2.3293381523840204}	{"model": ["1f32292d2217f899d164321641a5fc9ff0da91c6ef0db97beb55d090f57a6dc7", 840]}	{}	f
digits	1	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.9901459376017252, "holdout_accuracy": 0.35, "holdout_loss": 2.200595474243164}	{"model": ["b5b43fcb8fe5bf05abac7d612dabeca4be3d846f7281ef0f83bb94493cba02cd", 840]}	{}	f
digits	2	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.9149384180704752, "holdout_accuracy": 0.44, "holdout_loss": 2.149122619628906}	{"model": ["4d3e5334668f2c587dfc87a25ddeb90f09df1561beb746cd1e513bc2aa66d5b7", 840]}	{}	f
digits	2	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.0978784561157227, "holdout_accuracy": 0.27472527472527475, "holdout_loss": 2.2288158542507297}	{"model": ["9f68abb82d179451543502f022456ebad67c8486cfa6a2f680c8e003409da931", 840]}	{}	f
digits	2	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 2.022431516647339, "holdout_accuracy": 0.29896907216494845, "holdout_loss": 2.2027244174603333}	{"model": ["7088f1d7773a8b222329b1eef7af9ad8754e75fd72e372a7a35e4708183362a5", 840]}	{}	f
digits	3	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.0447536849975587, "holdout_accuracy": 0.4065934065934066, "holdout_loss": 2.167045677101219}	{"model": ["456e53dcc84d609c506abc26b350674d4530bc3dddd3f4de8fe50bd579809294", 840]}	{}	f
digits	3	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 1.950279712677002, "holdout_accuracy": 0.41237113402061853, "holdout_loss": 2.1292008862053}	{"model": ["6845c37777698ec5de53dc73e9485029edd895d7d565a6ac5b90cb0c506c9068", 840]}	{}	f
digits	3	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.836133352915446, "holdout_accuracy": 0.57, "holdout_loss": 2.073952865600586}	{"model": ["4159f48eea74ee52b9c032df4357df42e60f47f819ff7db96206145202004581", 840]}	{}	f
private	1	1	cam-1	accepted		400	60	{}	{"model": ["b67b3e7363c925c379a71024912c9278c12070381b679125cee4be74038792f0", 840]}	{}	f
private	1	1	cam-2	accepted		362	50	{}	{"model": ["ad4115cd9ed85688221c276f539eb35281bd06f360a7092f6c5706ed7fdfc587", 840]}	{}	f
private	2	1	cam-1	accepted		400	60	{}	{"model": ["e4ab928e5081d14d1a17288d29dff4e1786d7c5fe6b612972a6bbf8ad4cb11f5", 840]}	{}	f
private	2	1	cam-3	accepted		387	60	{}	{"model": ["9f70a48ad0b4362a3f41e5c503af604f54dfef33ce25b169589a1f4064d48a01", 840]}	{}	f
private	3	1	cam-2	accepted		362	50	{}	{"model": ["5c1fd9164feb30bb3247b84963ac72eab42f8684b9a62609b65ae4b4383b5fb8", 840]}	{}	f
private	3	1	cam-1	accepted		400	60	{}	{"model": ["c4beae6641e9afce876d58608e4a816964ab259524d3dfa341588a3e442c6db3", 840]}	{}	f
private	3	1	cam-3	accepted		387	60	{}	{"model": ["0ee64f38419c40f685e0bfb9663b645592988784208ae3db6356476e505c8f1e", 840]}	{}	f
private	4	1	cam-1	accepted		400	60	{}	{"model": ["7e6ca806454b1b88e2a627a972c1cef1ee3d33dd7dd755943ad40de8cbda90d3", 840]}	{}	f
private	4	1	cam-3	accepted		387	60	{}	{"model": ["7e9b7c580dd270818e3d943467764a1dd29b93029cd8e4fb4fe3d27b64dbb17e", 840]}	{}	f
private	5	1	cam-3	accepted		387	60	{}	{"model": ["d986c947c02b1ec971237fc55a2bc126dc85fd6486fd3d711550cc3c2a204078", 840]}	{}	f
private	5	1	cam-1	accepted		400	60	{}	{"model": ["a4856a107b4a9087b854be0a2b0fe551b010899f97a459570fdc2e2772f73026", 840]}	{}	f
private	5	1	cam-2	accepted		362	50	{}	{"model": ["9a92652fec766b5a63159487172bd54388823ca5f2855fcf02193c0bce8b2c57", 840]}	{}	f
private	6	1	cam-3	accepted		387	60	{}	{"model": ["b37f2125a40ee07c42b0211a3deb1545ba141a0b92c1541ff350d9d84b2ef196", 840]}	{}	f
private	6	1	cam-1	accepted		400	60	{}	{"model": ["3e87178dbd373c6a40d5bee142a94dd292b20c1a7ca5f6d8d5ac3d16d64c1122", 840]}	{}	f
private	6	1	cam-2	accepted		362	50	{}	{"model": ["14f35bbe03190e5b5ff14d5dd9b53bccab926ac7eb7c6da176072a3e4e3fc680", 840]}	{}	f
private	7	1	cam-2	accepted		362	50	{}	{"model": ["598f0deb8ade382e71e1193dd92c997247d63a262c79031324e1f662944170cd", 840]}	{}	f
private	8	1	cam-3	accepted		387	60	{}	{"model": ["6f279ceba7fcd184f463d08e1ece26bb090e8603c10fc37cbf6eae56317dbd15", 840]}	{}	f
private	8	1	cam-1	accepted		400	60	{}	{"model": ["084ed4f2b7eaa1753b1963061a9d69ce52d129313a7d4de44856badef7d28339", 840]}	{}	f
private	8	1	cam-2	accepted		362	50	{}	{"model": ["8b6ee7c97fee6c1a00f0e6bd515521c779c59d3885e46a4dcd0c2acd1f5f81fd", 840]}	{}	f
private	9	1	cam-1	accepted		400	60	{}	{"model": ["1c62f3d25d19551e3b6b05ce29e82948487967900e4a53ee58145edc44d2fc9a", 840]}	{}	f
private	9	1	cam-2	accepted		362	50	{}	{"model": ["68845cb1baf600c9fe8b4ff32a5a9568e5badde213ddbb618a7afebcd99f5f4a", 840]}	{}	f
private	10	1	cam-3	accepted		387	60	{}	{"model": ["e08368f58ebc87b416439615935b8544f972de90ce1783e63814f2e2b79618c9", 840]}	{}	f
private	10	1	cam-1	accepted		400	60	{}	{"model": ["ee3d97197e8248b9ced5bd41238524b0c2ec7d66328771f656d66ebd8e7f1de3", 840]}	{}	f
open	1	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.1731811332702637, "holdout_accuracy": 0.18681318681318682, "holdout_loss": 2.301025642143501}	{"model": ["9a9b99571531841205e3fba8c99f7bec1e61265fe34eccff8c77d1ba172166d8", 840]}	{}	f
open	1	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.9901459376017252, "holdout_accuracy": 0.35, "holdout_loss": 2.200595474243164}	{"model": ["b5b43fcb8fe5bf05abac7d612dabeca4be3d846f7281ef0f83bb94493cba02cd", 840]}	{}	f
open	1	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 2.1111735184987386, "holdout_accuracy": 0.12371134020618557, "holdout_loss": 2.3293381523840204}	{"model": ["1f32292d2217f899d164321641a5fc9ff0da91c6ef0db97beb55d090f57a6dc7", 840]}	{}	f
open	2	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 2.022431516647339, "holdout_accuracy": 0.29896907216494845, "holdout_loss": 2.2027244174603333}	{"model": ["7088f1d7773a8b222329b1eef7af9ad8754e75fd72e372a7a35e4708183362a5", 840]}	{}	f
open	2	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.9149384180704752, "holdout_accuracy": 0.44, "holdout_loss": 2.149122619628906}	{"model": ["4d3e5334668f2c587dfc87a25ddeb90f09df1561beb746cd1e513bc2aa66d5b7", 840]}	{}	f
open	2	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.0978784561157227, "holdout_accuracy": 0.27472527472527475, "holdout_loss": 2.2288158542507297}	{"model": ["9f68abb82d179451543502f022456ebad67c8486cfa6a2f680c8e003409da931", 840]}	{}	f
open	3	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 1.950279712677002, "holdout_accuracy": 0.41237113402061853, "holdout_loss": 2.1292008862053}	{"model": ["6845c37777698ec5de53dc73e9485029edd895d7d565a6ac5b90cb0c506c9068", 840]}	{}	f
open	4	1	cam-3	accepted		387	60	{"holdout_samples": 97.0, "loss": 1.8851110458374023, "holdout_accuracy": 0.4948453608247423, "holdout_loss": 2.058330575215448}	{"model": ["5ab409050543389909cf5ce90d83df6774c46c4a5c1d54eb0f253edb2a27dda6", 840]}	{}	f
open	3	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 2.0447536849975587, "holdout_accuracy": 0.4065934065934066, "holdout_loss": 2.167045677101219}	{"model": ["456e53dcc84d609c506abc26b350674d4530bc3dddd3f4de8fe50bd579809294", 840]}	{}	f
open	3	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.836133352915446, "holdout_accuracy": 0.57, "holdout_loss": 2.073952865600586}	{"model": ["4159f48eea74ee52b9c032df4357df42e60f47f819ff7db96206145202004581", 840]}	{}	f
open	4	1	cam-2	accepted		362	50	{"holdout_samples": 91.0, "loss": 1.9915108680725098, "holdout_accuracy": 0.46153846153846156, "holdout_loss": 2.1135630764804043}	{"model": ["a288bd5047b1c1328877f626ee068fea6d7444ba17067d677005a6907ccdd8bb", 840]}	{}	f
open	4	1	cam-1	accepted		400	60	{"holdout_samples": 100.0, "loss": 1.764956013361613, "holdout_accuracy": 0.63, "holdout_loss": 1.9964366912841798}	{"model": ["d1a44887b4ae675382069a526f83a63b37d45f63ff383b7ccbe5453c5f35e283", 840]}	{}	f
\.


--
-- Data for Name: devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.devices (device, enrolled, last_seen, certificate_expires, public_key_sha256, secret_sha256, platform, labels, reported_labels, release, rounds, last_result, revoked) FROM stdin;
cam-4	1795920469.6255493	1795920469.6255493	1803696469	3f2338ba1ad5129397f07aab972f269944ef0d4c5771e3568c7856fd5d315c40	a05825dfd28683646a23a3df34a1260e15d55b0706edca31146e77344000cb7a	{}	{}	{}		0	{}	1795920471.781224
cam-1	1795920468.22034	1795920474.1074467	1803696468	9061571f4176c0821305c0afaec0cd0ed9ef1cdb0adc185e1d200c88e5499626	a05825dfd28683646a23a3df34a1260e15d55b0706edca31146e77344000cb7a	{"python": "3.11.7", "processor": "AMD EPYC", "threads": "1", "architecture": "x86_64", "memory": "25276510208", "accelerator": "cpu", "system": "Debian GNU/Linux 12 (bookworm)", "torch": "2.13.0+cpu", "plans": "torchscript/4, graph/1"}	{"site": "berlin"}	{"sandbox": "strict"}	0.2.0	16	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795920496.516812, "seconds": 0.0}	0
cam-2	1795920468.6769867	1795920474.2042615	1803696468	2dba2e8782cb32eb56a5f2572c7b743630a39bedd8f41661eecd83723fefb9db	a05825dfd28683646a23a3df34a1260e15d55b0706edca31146e77344000cb7a	{"python": "3.11.7", "processor": "AMD EPYC", "architecture": "x86_64", "threads": "1", "memory": "25276510208", "accelerator": "cpu", "system": "Debian GNU/Linux 12 (bookworm)", "torch": "2.13.0+cpu", "plans": "torchscript/4, graph/1"}	{}	{"sandbox": "strict"}	0.2.0	14	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795920496.516812, "seconds": 0.0}	0
cam-3	1795920469.1308436	1795920474.1881406	1803696469	5a1031f0ebb83cc5c7697f9533c65260802775e8ee6c11ee3dfeb6dbc860175d	a05825dfd28683646a23a3df34a1260e15d55b0706edca31146e77344000cb7a	{"processor": "AMD EPYC", "torch": "2.13.0+cpu", "threads": "1", "accelerator": "cpu", "memory": "25276510208", "architecture": "x86_64", "system": "Debian GNU/Linux 12 (bookworm)", "python": "3.11.7", "plans": "torchscript/4, graph/1"}	{}	{"sandbox": "strict"}	0.2.0	14	{"run": "open", "round": 4, "attempt": 1, "outcome": "counted", "reason": "", "time": 1795920496.516812, "seconds": 0.0}	0
\.


--
-- Data for Name: draws; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.draws (run, secret) FROM stdin;
digits	\\x3d4b82150865a735dda2b7f50e452c8fcef99b699a4923874364b3ba39c8ec22
private	\\x495e812c9bc8e5b9d1adc56d7301c0dec8eb2df32a16d80ae14bc04f1dc4524b
open	\\xf951acc39a71c284c25f97d38d6d55d628864b52f0f0a7f4be5cda4b691c0ecb
\.


--
-- Data for Name: eligibility; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.eligibility (run, device, fingerprint, reason, classes, answered) FROM stdin;
digits	cam-3	7479c6c29da9bb24184aaa72bd76bf602e900ad950d7ad3d36134550f6ab4b83		\\xff03	1795920478114954
digits	cam-2	9251840674e2a8aab65f47770d209eb849d7bd8d3a2711edc863481499362af9		\\xbf03	1795920478131442
digits	cam-1	fbba5c8b29dd82cd51746d0d3e07ba9da0b99fa1eab8ee398eb209bf8becd819		\\xff02	1795920478139974
private	cam-1	fbba5c8b29dd82cd51746d0d3e07ba9da0b99fa1eab8ee398eb209bf8becd819		\\x	1795920481747641
private	cam-2	9251840674e2a8aab65f47770d209eb849d7bd8d3a2711edc863481499362af9		\\x	1795920481755639
private	cam-3	7479c6c29da9bb24184aaa72bd76bf602e900ad950d7ad3d36134550f6ab4b83		\\x	1795920481755639
open	cam-1	fbba5c8b29dd82cd51746d0d3e07ba9da0b99fa1eab8ee398eb209bf8becd819		\\xff02	1795920494912976
open	cam-2	9251840674e2a8aab65f47770d209eb849d7bd8d3a2711edc863481499362af9		\\xbf03	1795920494927389
open	cam-3	7479c6c29da9bb24184aaa72bd76bf602e900ad950d7ad3d36134550f6ab4b83		\\xff03	1795920494927389
\.


--
-- Data for Name: evaluation_devices; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.evaluation_devices (run, round, device, outcome, reason, samples, score, local_score) FROM stdin;
digits	3	cam-1	scored		100	0.63	0.54
digits	3	cam-2	scored		91	0.46153846153846156	0.2857142857142857
digits	3	cam-3	scored		97	0.4948453608247423	0.3402061855670103
\.


--
-- Data for Name: evaluations; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.evaluations (run, round, number, model_sha256, model_size, opened, deadline, closed) FROM stdin;
digits	3	1	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840	1795920492.057015	1795924092.057015	1795920492.166939
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
digits	cam-3	1	float32	0
digits	cam-1	1	float32	0
digits	cam-2	1	float32	0
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
620e9455d5d818c0bceb99d62d499cda18f34928	operator	admin	88cb0ab13c720b1b261d1a067e0cd1ef00f36f1611642d2ec47e51ba358519ed	1795920454.8682983		1827456454	0
76b676a88bafe841a6e655e6f1da50a738aa3ee5	ann	engineer	d7983ca8a785b3c2d9e26df25754a3285804f64b4cef8a34f4193a6070eb041e	1795920470.1635032	operator	1827456470	0
7198327fc2abd7d7a789c145809d6bf0f905cac1	bob	engineer	0237a89167c808eb88e6fdba4057ec9c4c6d9ca93a17f0c0a3a3a62fd7de170d	1795920470.7251222	operator	1827456470	1795920471.240334
\.


--
-- Data for Name: participants; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.participants (run, device, round, attempt, clipped) FROM stdin;
digits	cam-1	3	1	0
digits	cam-2	3	1	0
digits	cam-3	3	1	0
private	cam-2	9	1	0
private	cam-1	10	1	0
private	cam-3	10	1	0
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
1	private	1795920481.7026951	1	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	0ca240cdcb68eecb2be5971b4c4863ffb6f2b97b609356916ebdcd9091a6db8f	1795920482.1411626
2	private	1795920481.7026951	2	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	e0b170ac6edf929393a5017ad026f2eb45d1e19f24002712733565aad5642f5a	1795920482.5191083
3	private	1795920481.7026951	3	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	ca033389ec8843cfa9e0bae7ec04cba7eefa493b1f95a684747752fa074cc4d5	1795920482.879869
4	private	1795920481.7026951	4	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	cfa97c1525390f16385fc521115b2d153bd4683375c7883374cd556d74033147	1795920483.1194887
5	private	1795920481.7026951	5	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	7f67a54fcdb6b4d4e38107b52e412cd7e3f48c29f5dc168b6d74d21bdeeaa796	1795920483.4897728
6	private	1795920481.7026951	6	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	31e8557b6d54a691f07c5e76a7f9c6312d40dee95273e4492d072a68370d9177	1795920483.9432304
7	private	1795920481.7026951	7	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	b5f7eb794c5fa86ade8c553f241144b5e23f39cc5bb87be988c4b4b04c97463b	1795920484.1787097
8	private	1795920481.7026951	8	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	f96cc7e65ba3643a3b65b0b47ec7edcd6887712ddf28541f4cebdb2b62d13fe0	1795920484.4826338
9	private	1795920481.7026951	9	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	ca16c37b1e3aba5df149b47359983fafef43ef838d499bdf07df3155683b4c47	1795920484.7754164
10	private	1795920481.7026951	10	1	gaussian		0.001	0.6666666666666666	1.243374	1	1	66b55582e6655da312c29c8210252f99296828c3b29c87bdc67f2da35bb157ec	1795920485.0104582
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
digits	1	19ce6a44456fb95899ebf149f44ac495205c1e84c467921346cbf43d7218e283	2921
digits	1	24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78	12042
digits	1	2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273	840
digits	1	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647
digits	1	4e51394a16c6518e4c42ff153bb7feafccba6b7fc94701c93be2d03a41ebc84e	839
digits	1	5a1622a058a7d2deb11222a52452a2243ac0d84fad4cde5a90823ed33ee99744	10573
digits	1	7427877c40fb0361401248f9c96abe6117396bc6ab16811b5b1706274c02443e	20
digits	1	7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c	47777
digits	1	9850aed365bf1b3e1ab35db9f72fcb29b47579ae56b111469c313dfeb0997788	6106
digits	1	bec2ff739d1ba0776d0612ad614e0a1b293f07fbedc299c8e770e7eef78cabda	814
digits	1	c2b94bac4eb54ea7423d369c60cc2369f6d2a744bc49ff9c956f0ffb11aabf56	1753
digits	1	c8abd23c97546d998c5a3d9ab095981abcb7711e79afdfebf142d67c9ae47056	1924
digits	1	c9f4b5024508f7104f552b4fa3f02fcdcf52bd37535aaca758d46b2a3074df6f	3032
digits	1	f7faaa06b7a36eb310199cf77455851eef169b08cc83f1e18d3e2bcb889e3d3c	1376
\.


--
-- Data for Name: releases; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.releases (name, version, created, operator, manifest_sha256, manifest_size, signature_sha256, signature_size, content) FROM stdin;
digits	1	1795920488.8743505	operator	c2b94bac4eb54ea7423d369c60cc2369f6d2a744bc49ff9c956f0ffb11aabf56	1753	4e51394a16c6518e4c42ff153bb7feafccba6b7fc94701c93be2d03a41ebc84e	839	{"created":1795920488,"evaluation":{"data_sha256":"942bf5dc67c5ab24906e26cf6ff61bd306bb1b046da531dbf78354e7054805ab","samples":360,"score":0.5694444444444444},"format":"moonfed-release/2","input":{"kind":"image","shape":[8,8,1]},"metric":{"maximise":true,"name":"accuracy","share":true,"unit":""},"name":"digits","pictures":{"float32":{"confusion.svg":{"sha256":"9850aed365bf1b3e1ab35db9f72fcb29b47579ae56b111469c313dfeb0997788","size":6106}}},"plan":{"manifest.json":{"sha256":"4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67","size":2647},"plan.json":{"sha256":"24fb4ad752d5c552d7e8c28e37029fea6be04a7bb46a97dbf121f3dcdcb72e78","size":12042},"plan.pt":{"sha256":"7c7009a1f9891975ea777d4834c4d651a51005c61e73d47c313e66ac99b8f32c","size":47777},"weights.safetensors":{"sha256":"2637d6fe1c64eedc850e45b1c4f4410d43228883de9c02baf6ec058af27e4273","size":840}},"round":3,"run":"digits","target":{"kind":"class","names":["0","1","2","3","4","5","6","7","8","9"],"shape":[]},"variants":{"float32":{"MODEL_CARD.md":{"sha256":"c9f4b5024508f7104f552b4fa3f02fcdcf52bd37535aaca758d46b2a3074df6f","size":3032},"bom.cdx.json":{"sha256":"5a1622a058a7d2deb11222a52452a2243ac0d84fad4cde5a90823ed33ee99744","size":10573},"config.pbtxt":{"sha256":"bec2ff739d1ba0776d0612ad614e0a1b293f07fbedc299c8e770e7eef78cabda","size":814},"evaluation.json":{"sha256":"f7faaa06b7a36eb310199cf77455851eef169b08cc83f1e18d3e2bcb889e3d3c","size":1376},"labels.txt":{"sha256":"7427877c40fb0361401248f9c96abe6117396bc6ab16811b5b1706274c02443e","size":20},"model.onnx":{"sha256":"19ce6a44456fb95899ebf149f44ac495205c1e84c467921346cbf43d7218e283","size":2921},"model.sig":{"sha256":"c8abd23c97546d998c5a3d9ab095981abcb7711e79afdfebf142d67c9ae47056","size":1924}}},"version":1}
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
digits	1	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920478.1467385	0.699769756999558	3	[]	{}	[]	{}	{}	{"training": 0.5502554139993663, "upload": 0.09321525500035932, "waiting": 0.0077072140002201195, "reduction": 0.03890722399955848, "commit": 0.009684650000053807}	{"counted": 3}	2520	2520	0
private	9	1	committed	["cam-1", "cam-2"]	["cam-1", "cam-2"]		1795920484.5015461	0.26349078600014764	2	[]	{}	[]	{}	{}	{"training": 0.19331412199971965, "upload": 0.042669225000281585, "waiting": 0.003342779999911727, "reduction": 0.011433005000071716, "commit": 0.012731654000162962}	{"counted": 2}	1680	1680	0
digits	2	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920478.8728027	0.3317155630002162	3	[]	{}	[]	{}	{}	{"training": 0.2252156840004318, "upload": 0.050844554999457614, "waiting": 0.013993319999826781, "reduction": 0.030797857000834483, "commit": 0.010864146999665536}	{"counted": 3}	2520	2520	0
digits	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920479.2797952	0.3634065850001207	3	[]	{}	[]	{}	{}	{"training": 0.30144673899940244, "upload": 0.02704593599992222, "waiting": 0.0038610730007349048, "reduction": 0.01877273099944432, "commit": 0.012280106000616797}	{"counted": 3}	2520	2520	0
open	4	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920496.1268237	0.36454787600087	3	[]	{}	[]	{}	{}	{"training": 0.31646964700030367, "upload": 0.019162880999829213, "waiting": 0.003889415000230656, "reduction": 0.016229947000283573, "commit": 0.00879598600022291}	{"counted": 3}	2520	2520	0
private	1	1	committed	["cam-1", "cam-2"]	["cam-1", "cam-2"]		1795920481.7680976	0.3521457470005771	2	[]	{}	[]	{}	{}	{"training": 0.20897999800035905, "upload": 0.05118672499975219, "waiting": 0.04566657099985605, "reduction": 0.029108769999766082, "commit": 0.01720368300084374}	{"counted": 2}	1680	1680	0
private	10	1	committed	["cam-1", "cam-3"]	["cam-1", "cam-3"]		1795920484.7924912	0.2070720510000683	2	[]	{}	[]	{}	{}	{"training": 0.15723727499971574, "upload": 0.023408426999594667, "waiting": 0.002662317000613257, "reduction": 0.013728959999752988, "commit": 0.010035072000391665}	{"counted": 2}	1680	1680	0
private	2	1	committed	["cam-1", "cam-3"]	["cam-1", "cam-3"]		1795920482.1530442	0.3568859299994074	2	[]	{}	[]	{}	{}	{"training": 0.3024352969996471, "upload": 0.02396397499978775, "waiting": 0.004376460000457882, "reduction": 0.010188114999436948, "commit": 0.01592208300007769}	{"counted": 2}	1680	1680	0
private	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920482.538499	0.32990551500006404	3	[]	{}	[]	{}	{}	{"training": 0.278567815000315, "upload": 0.016739770999265602, "waiting": 0.0020253680004316266, "reduction": 0.015711258999544953, "commit": 0.01686130200050684}	{"counted": 3}	2520	2520	0
open	5	1	open	["cam-1", "cam-2", "cam-3"]	[]		1795920496.5519962	0	0	[]	{}	[]	{}	{}	{}	{}	0	0	0
private	4	1	committed	["cam-1", "cam-3"]	["cam-1", "cam-3"]		1795920482.8922553	0.21261240100011491	2	[]	{}	[]	{}	{}	{"training": 0.16908989399962593, "upload": 0.013027861000409757, "waiting": 0.0023122749998947256, "reduction": 0.015553860000181885, "commit": 0.012628511000002618}	{"counted": 2}	1680	1680	0
open	1	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920494.938874	0.49555292100012593	3	[]	{}	[]	{}	{}	{"training": 0.2585729740003444, "upload": 0.08930430799955502, "waiting": 0.011321359000248776, "reduction": 0.1052759900003366, "commit": 0.03107828999964113}	{"counted": 3}	2520	2520	0
private	5	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920483.1402159	0.331914558999415	3	[]	{}	[]	{}	{}	{"training": 0.2778818019996834, "upload": 0.023378758999569982, "waiting": 0.005503540000063367, "reduction": 0.012641060000532889, "commit": 0.012509397999565408}	{"counted": 3}	2520	2520	0
private	6	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920483.4991412	0.4351173850000123	3	[]	{}	[]	{}	{}	{"training": 0.25241209999967396, "upload": 0.14774338900042494, "waiting": 0.0031865880000623292, "reduction": 0.008313841999552096, "commit": 0.02346146600029897}	{"counted": 3}	2520	2520	0
private	7	1	committed	["cam-2"]	["cam-2"]		1795920483.9656076	0.20563131400012935	1	[]	{}	[]	{}	{}	{"training": 0.1349799220006389, "upload": 0.03575276999981725, "waiting": 0.004071775999364036, "reduction": 0.012497366000388865, "commit": 0.018329479999920295}	{"counted": 1}	840	840	0
open	2	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920495.4997208	0.29602554099983536	3	[]	{}	[]	{}	{}	{"training": 0.2503330919998916, "upload": 0.02150838599936833, "waiting": 0.00787476300047274, "reduction": 0.009217222999723163, "commit": 0.007092077000379504}	{"counted": 3}	2520	2520	0
private	8	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920484.1896453	0.2837679730000673	3	[]	{}	[]	{}	{}	{"training": 0.1776192830002401, "upload": 0.06751951000023837, "waiting": 0.003791633999753685, "reduction": 0.017378493000251183, "commit": 0.017459052999583946}	{"counted": 3}	2520	2520	0
open	3	1	committed	["cam-1", "cam-2", "cam-3"]	["cam-1", "cam-2", "cam-3"]		1795920495.8292549	0.27141726599984395	3	[]	{}	[]	{}	{}	{"training": 0.18004701399968326, "upload": 0.0357980270000553, "waiting": 0.01061667900012253, "reduction": 0.031249053999999887, "commit": 0.013706491999982973}	{"counted": 3}	2520	2520	0
\.


--
-- Data for Name: runs; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.runs (run, created, status, reason, settings, manifest_sha256, manifest_size, method, metric, initial_sha256, initial_size) FROM stdin;
digits	1795920474.7211232	finished		{"rounds": 3, "stop_after": 0, "target_metrics": {}, "cohort": "all", "minimum_devices": 3, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 1.25, "clip_norm": 0.0, "clip_factor": 1.25, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {}, "population": 0, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
private	1795920481.7026951	finished		{"rounds": 10, "stop_after": 0, "target_metrics": {}, "cohort": "2", "minimum_devices": 1, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 0.0, "clip_norm": 1.0, "clip_factor": 0.0, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {"epsilon": 8, "delta": 0.001, "noise_multiplier": 1.243374}, "population": 3, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
open	1795920494.8808568	running		{"rounds": 50, "stop_after": 0, "target_metrics": {}, "cohort": "all", "minimum_devices": 3, "quorum": "50%", "deadline": 3600.0, "max_attempts": 10, "heartbeat_timeout": 120.0, "over_selection": "0%", "asynchronous": 0, "max_staleness": 20, "labels": {}, "trusted_labels": false, "private_classes": false, "sampling": "uniform", "uplink_encoding": "float32", "downlink_encoding": "float32", "weight_cap": 1.25, "clip_norm": 0.0, "clip_factor": 1.25, "exclude_after": 0, "trusting": false, "reducer": "mean", "reducer_settings": {}, "require_plan": "", "privacy": {}, "population": 0, "seed": 0, "keep_last": 20, "keep_every": 100}	4d80ab486bc364b147f0b78d9891c4ab8f1e2e5282db7584d43c28013132cb67	2647	fedavg	{"name": "accuracy", "maximise": true, "share": true, "unit": ""}	d9b237c73d1feda28eee1822c95f4eb05876aa92182242c5667380b9cf32655b	840
\.


--
-- Data for Name: schema; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.schema (readable_from, release) FROM stdin;
1	0.2.0
\.


--
-- Data for Name: tokens; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.tokens (secret_sha256, uses, uses_left, expires, created, operator, device, revoked) FROM stdin;
a05825dfd28683646a23a3df34a1260e15d55b0706edca31146e77344000cb7a	4	0	1796006867.707562	1795920467.707562	operator		0
\.


--
-- Data for Name: webhook_events; Type: TABLE DATA; Schema: public; Owner: -
--

COPY public.webhook_events (number, id, created, body, attempts, due, claimed, refused) FROM stdin;
2	evt_5b23531f07ab4035a05e363f13eef4db	1795920485.022219	{"id":"evt_5b23531f07ab4035a05e363f13eef4db","type":"run.ended","time":"2026-11-29T02:48:05Z","data":{"run":"private","status":"finished","round":10,"reason":""}}	0	1795920485.022219	0	f
1	evt_c5c1e7451f454bb59ca630c964fc7616	1795920479.666027	{"id":"evt_c5c1e7451f454bb59ca630c964fc7616","type":"run.ended","time":"2026-11-29T02:47:59Z","data":{"run":"digits","status":"finished","round":3,"reason":""}}	5	1795920507.2766693	0	f
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


