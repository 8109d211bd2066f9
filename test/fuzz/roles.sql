-- Of the whole server, once.
CREATE ROLE fz_none LOGIN;
CREATE ROLE fz_reader LOGIN;
CREATE ROLE fz_user LOGIN;
CREATE ROLE fz_admin LOGIN;
CREATE ROLE fz_team LOGIN;
CREATE ROLE "fz ""quoted'" LOGIN;
CREATE ROLE fz_nologin;
GRANT fz_team, fz_nologin TO fz_admin;
GRANT fz_team TO fz_user;
