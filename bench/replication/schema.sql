-- What the master gets before a run; the replica gets it from the master.

CREATE DATABASE bench;
USE bench;
CREATE TABLE ring (slot INT PRIMARY KEY, bytes LONGBLOB) ENGINE=InnoDB;
CREATE TABLE marker (id INT PRIMARY KEY, number INT, marked DATETIME(6)) ENGINE=InnoDB;
INSERT INTO marker VALUES (1, 0, SYSDATE(6));

DELIMITER //

-- Writes 64 KiB again and again for so many seconds, so that the binlog grows at this rate.
CREATE PROCEDURE write_load(seconds INT, bytes_per_s BIGINT)
BEGIN
  DECLARE began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE elapsed_us, written BIGINT DEFAULT 0;
  WHILE elapsed_us < seconds * 1000000 DO
    IF written < bytes_per_s * elapsed_us / 1000000 THEN
      REPLACE INTO ring VALUES (written DIV 65536 MOD 64, REPEAT(MD5(written), 2048));
      SET written = written + 65536;
    ELSE
      DO SLEEP(0.005);
    END IF;
    SET elapsed_us = TIMESTAMPDIFF(MICROSECOND, began, SYSDATE(6));
  END WHILE;
END //

-- Marks so many times, one every so many seconds, with the time of each.
CREATE PROCEDURE mark(times INT, seconds INT)
BEGIN
  DECLARE began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE next INT DEFAULT 1;
  WHILE next <= times DO
    DO SLEEP(GREATEST(0, next * seconds - TIMESTAMPDIFF(MICROSECOND, began, SYSDATE(6)) / 1000000));
    UPDATE marker SET number = next, marked = SYSDATE(6) WHERE id = 1;
    SET next = next + 1;
  END WHILE;
END //

-- Looks every 20 ms, and tells each mark's number and its age in microseconds when it is seen, until
-- the last or the limit.
CREATE PROCEDURE watch(times INT, limit_s INT)
BEGIN
  DECLARE began DATETIME(6) DEFAULT SYSDATE(6);
  DECLARE seen, found INT DEFAULT 0;
  DECLARE found_marked DATETIME(6);
  WHILE seen < times AND SYSDATE(6) < began + INTERVAL limit_s SECOND DO
    SELECT number, marked INTO found, found_marked FROM marker WHERE id = 1;
    IF found > seen THEN
      SELECT found, TIMESTAMPDIFF(MICROSECOND, found_marked, SYSDATE(6));
      SET seen = found;
    END IF;
    DO SLEEP(0.02);
  END WHILE;
END //
