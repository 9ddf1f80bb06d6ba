BEGIN TRANSACTION;
CREATE TABLE answers (
	run VARCHAR(63) NOT NULL, 
	round BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	device VARCHAR(63) NOT NULL, 
	outcome VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	samples BIGINT NOT NULL, 
	steps BIGINT NOT NULL, 
	metrics JSON NOT NULL, 
	blobs JSON NOT NULL, 
	PRIMARY KEY (run, round, attempt, device), 
	FOREIGN KEY(run, round, attempt) REFERENCES rounds (run, round, attempt)
);
INSERT INTO "answers" VALUES('digits',1,1,'a','accepted','',10,2,'{"loss": 0.5}','{"model": ["ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", 1]}');
INSERT INTO "answers" VALUES('digits',1,1,'b','accepted','',10,2,'{"loss": 0.5}','{"model": ["3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d", 1]}');
INSERT INTO "answers" VALUES('digits',2,1,'a','accepted','',10,2,'{"loss": 0.5}','{"model": ["ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", 1]}');
INSERT INTO "answers" VALUES('digits',2,1,'b','accepted','',10,2,'{"loss": 0.5}','{"model": ["3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d", 1]}');
INSERT INTO "answers" VALUES('digits',2,2,'b','accepted','',10,2,'{"loss": 0.5}','{"model": ["3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d", 1]}');
INSERT INTO "answers" VALUES('digits',2,2,'c','accepted','',10,2,'{"loss": 0.5}','{"model": ["2e7d2c03a9507ae265ecf5b5356885a53393a2029d241394997265a1a25aefc6", 1]}');
INSERT INTO "answers" VALUES('digits',3,1,'d','accepted','',10,2,'{"loss": 0.5}','{"model": ["18ac3e7343f016890c510e93f935261169d9e3f565436429830faf0934f4f8e4", 1]}');
CREATE TABLE devices (
	device VARCHAR(63) NOT NULL, 
	enrolled DOUBLE NOT NULL, 
	last_seen DOUBLE NOT NULL, 
	certificate_expires DOUBLE NOT NULL, 
	public_key_sha256 VARCHAR(64) NOT NULL, 
	secret_sha256 VARCHAR(64) NOT NULL, 
	platform JSON NOT NULL, 
	PRIMARY KEY (device)
);
INSERT INTO "devices" VALUES('a',1.79525150150381326676e+09,1.79525150150381326676e+09,0.0,'','','{"torch": "2.6"}');
CREATE TABLE metrics (
	run VARCHAR(63) NOT NULL, 
	round BIGINT NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	value DOUBLE NOT NULL, 
	PRIMARY KEY (run, round, name), 
	FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "metrics" VALUES('digits',1,'train_loss',0.5);
INSERT INTO "metrics" VALUES('digits',2,'train_loss',0.5);
CREATE TABLE rounds (
	run VARCHAR(63) NOT NULL, 
	round BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	cohort JSON NOT NULL, 
	counted JSON NOT NULL, 
	reason TEXT NOT NULL, 
	blobs JSON NOT NULL, 
	opened DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	PRIMARY KEY (run, round, attempt), 
	FOREIGN KEY(run) REFERENCES runs (run)
);
INSERT INTO "rounds" VALUES('digits',1,1,'committed','["a", "b", "c", "d"]','["a", "b"]','','{"model": ["cd36b49d7b2a8b5e4e13663cb54c5e1338c17b7d3af1c506fb3842bd08291822", 7], "variate": ["a53c2525be7d3d73d751977b274e45d5fb6fbd74b24b270fcedf9b2d5c390475", 9]}',1.79525150149073696136e+09,4.15515899658203125e-03);
INSERT INTO "rounds" VALUES('digits',2,1,'abandoned','["a", "b", "c", "d"]','[]','because','{}',1.79525150149702334397e+09,2.1002292633056640625e-03);
INSERT INTO "rounds" VALUES('digits',2,2,'committed','["a", "b", "c", "d"]','["b", "c"]','','{"model": ["97e2521720cb4b3821c7ed9df7dbca7a63e04b42ba05ffe3e15dc992f227ae36", 7], "variate": ["bddd78d0cd4cb332af11c45bd44424313f0cc340afa3f880eeed55aaf22814b5", 9]}',1.79525150149988079071e+09,1.9557476043701171875e-03);
INSERT INTO "rounds" VALUES('digits',3,1,'open','["a", "b", "c", "d"]','[]','','{}',1.79525150150263953204e+09,0.0);
CREATE TABLE runs (
	run VARCHAR(63) NOT NULL, 
	created DOUBLE NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	settings JSON NOT NULL, 
	manifest_sha256 VARCHAR(64) NOT NULL, 
	manifest_size BIGINT NOT NULL, 
	method TEXT NOT NULL, 
	initial_sha256 VARCHAR(64) NOT NULL, 
	initial_size BIGINT NOT NULL, 
	PRIMARY KEY (run)
);
INSERT INTO "runs" VALUES('digits',1.5,'running','{"rounds": 3, "cohort": {"count": 2, "fraction": null}, "minimum_devices": 1, "quorum": {"count": 1, "fraction": null}, "deadline_seconds": 3600.0, "grace_seconds": 30.0, "seed": 18446744073709551615, "sampling": "uniform"}','05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f',8,'scaffold','ac1b5c0961a7269b6a053ee64276ed0e20a7f48aefb9f67519539d23aaf10149',7);
INSERT INTO "runs" VALUES('other',1.5,'finished','{"rounds": 3, "cohort": {"count": 2, "fraction": null}, "minimum_devices": 1, "quorum": {"count": 1, "fraction": null}, "deadline_seconds": 3600.0, "grace_seconds": 30.0, "seed": 18446744073709551615, "sampling": "uniform"}','05b3abf2579a5eb66403cd78be557fd860633a1fe2103c7642030defe32c657f',8,'scaffold','ac1b5c0961a7269b6a053ee64276ed0e20a7f48aefb9f67519539d23aaf10149',7);
CREATE TABLE schema (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema" VALUES(3);
CREATE TABLE tokens (
	secret_sha256 VARCHAR(64) NOT NULL, 
	uses_left INTEGER NOT NULL, 
	expires DOUBLE NOT NULL, 
	PRIMARY KEY (secret_sha256)
);
INSERT INTO "tokens" VALUES('0000000000000000000000000000000000000000000000000000000000000000',1,1000000000000.0);
COMMIT;
